import { join } from 'node:path';

import { freePort } from './free-port.js';
import { startServer, type TestServer } from './private-server.js';

export interface EtcdServer extends TestServer {
  /** Sends one command to this member, through nothing of ours. @throws what it refused */
  ask(path: string, command: object): Promise<Record<string, unknown>>;
}

export interface EtcdServerOptions {
  /** The election timeout, of which the shortest lease is three halves. Default 500: the shortest is one second. */
  readonly electionMs?: number;
}

/** Speed, at the price of losing data when the machine (not the server) crashes. */
const SETTINGS = ['--unsafe-no-fsync', '--log-level=warn', '--logger=zap'];

/** An etcd server of your own; `stop()` it when done. */
export async function startEtcd(options: EtcdServerOptions = {}): Promise<EtcdServer> {
  const [server] = await startEtcdCluster(1, options);
  return server as EtcdServer;
}

/** Members of one cluster, each with its own folder and ports. */
export async function startEtcdCluster(size: number, options: EtcdServerOptions = {}): Promise<EtcdServer[]> {
  const peers: string[] = [];
  while (peers.length < size) peers.push(`http://127.0.0.1:${await freePort()}`);
  const cluster = peers.map((peer, i) => `member${i}=${peer}`).join(',');
  const members = peers.map((peer, i) => startMember(`member${i}`, peer, cluster, options));
  const started = await Promise.allSettled(members);
  const failed = started.find((each) => each.status === 'rejected');
  if (!failed) return Promise.all(members);
  for (const each of started) if (each.status === 'fulfilled') await each.value.stop();
  throw failed.reason;
}

async function startMember(
  name: string,
  peer: string,
  cluster: string,
  { electionMs = 500 }: EtcdServerOptions,
): Promise<EtcdServer> {
  const server = await startServer({
    kind: 'etcd',
    url: (host, port) => `http://${host}:${port}`,
    command: ({ folder, port }) => ({
      program: 'etcd',
      args: [
        `--name=${name}`,
        `--data-dir=${join(folder, 'data')}`,
        `--listen-client-urls=http://127.0.0.1:${port}`,
        `--advertise-client-urls=http://127.0.0.1:${port}`,
        `--listen-peer-urls=${peer}`,
        `--initial-advertise-peer-urls=${peer}`,
        `--initial-cluster=${cluster}`,
        `--heartbeat-interval=${electionMs / 10}`,
        `--election-timeout=${electionMs}`,
        ...SETTINGS,
      ],
    }),
    ask: health,
  });
  return Object.assign(server, {
    ask: (path: string, command: object) => ask(server.url, path, command),
  });
}

async function ask(url: string, path: string, command: object): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}/v3/${path}`, {
    method: 'POST',
    body: JSON.stringify(command),
    signal: AbortSignal.timeout(5_000),
  });
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as Record<string, unknown>;
}

/** True once a leader is elected; needs no login. */
async function health(host: string, port: number): Promise<void> {
  const response = await fetch(`http://${host}:${port}/health`, { signal: AbortSignal.timeout(1_000) });
  const { health: word } = (await response.json()) as { health: string };
  if (word !== 'true') throw new Error(`its health is ${word}`);
}
