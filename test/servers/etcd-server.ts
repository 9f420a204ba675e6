import { join } from 'node:path';

import { freePort } from './free-port.js';
import { startServer, type TestServer } from './private-server.js';

export interface EtcdServer extends TestServer {
  /** Sends one command to this member, through nothing of ours. @throws what it refused */
  ask(path: string, command: object): Promise<Record<string, unknown>>;
}

/** A short election makes for short leases: the shortest is then one second. */
const TIMES = ['--heartbeat-interval=50', '--election-timeout=500'];

/** Speed, at the price of losing data when the machine (not the server) crashes; and one try to write is enough. */
const SETTINGS = [...TIMES, '--unsafe-no-fsync', '--log-level=warn', '--logger=zap'];

/** An etcd server of your own; `stop()` it when done. */
export async function startEtcd(): Promise<EtcdServer> {
  const [server] = await startEtcdCluster(1);
  return server as EtcdServer;
}

/** Members of one cluster, each with its own folder and ports. */
export async function startEtcdCluster(size: number): Promise<EtcdServer[]> {
  const peers: string[] = [];
  while (peers.length < size) peers.push(`http://127.0.0.1:${await freePort()}`);
  const cluster = peers.map((peer, i) => `member${i}=${peer}`).join(',');
  const members = peers.map((peer, i) => startMember(`member${i}`, peer, cluster));
  const started = await Promise.allSettled(members);
  const failed = started.find((each) => each.status === 'rejected');
  if (!failed) return Promise.all(members);
  for (const each of started) if (each.status === 'fulfilled') await each.value.stop();
  throw failed.reason;
}

async function startMember(name: string, peer: string, cluster: string): Promise<EtcdServer> {
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
        ...SETTINGS,
      ],
    }),
    ask: (host, port) => ask(`http://${host}:${port}`, 'kv/range', { key: 'AA==' }).then(() => undefined),
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
