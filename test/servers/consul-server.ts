import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { freePort } from './free-port.js';
import { startServer, type Place, type TestServer } from './private-server.js';

export interface ConsulServer extends TestServer {
  /** Sends one command to it, through nothing of ours; undefined for a key that is not there. @throws what it refused */
  ask(method: 'GET' | 'PUT' | 'DELETE', path: string, body?: unknown, token?: string): Promise<unknown>;
}

export interface ConsulServerOptions {
  /** The shortest session. Default 200; Consul's own is 10 000. */
  readonly minTtlMs?: number;
  /** Everything is forbidden but to those whose token says otherwise; this one may do everything. */
  readonly masterToken?: string;
}

/** Of one member of a cluster: what the others call it, and where they reach it. */
interface Peer {
  readonly node: string;
  readonly ports: { readonly server: number; readonly serf_lan: number };
}

/** A Consul server of your own, which is its own leader; `stop()` it when done. */
export async function startConsul(options: ConsulServerOptions = {}): Promise<ConsulServer> {
  const [server] = await startConsulCluster(1, options);
  return server as ConsulServer;
}

/** Servers of one cluster, each with its own folder and ports. */
export async function startConsulCluster(
  size: number,
  options: ConsulServerOptions = {},
): Promise<ConsulServer[]> {
  const peers: Peer[] = [];
  while (peers.length < size) {
    const ports = { server: await freePort(), serf_lan: await freePort() };
    peers.push({ node: `member${peers.length}`, ports });
  }
  const members = peers.map((peer) => startMember(peer, peers, options));
  const started = await Promise.allSettled(members);
  const failed = started.find((each) => each.status === 'rejected');
  if (!failed) return Promise.all(members);
  for (const each of started) if (each.status === 'fulfilled') await each.value.stop();
  throw failed.reason;
}

async function startMember(
  peer: Peer,
  peers: readonly Peer[],
  options: ConsulServerOptions,
): Promise<ConsulServer> {
  const server = await startServer({
    kind: 'consul',
    url: (host, port) => `http://${host}:${port}`,
    command: (place) => ({
      program: 'consul',
      args: ['agent', `-config-file=${configure(place, peer, peers, options)}`],
    }),
    ask: (host, port) => isLed(`http://${host}:${port}`, options.masterToken),
  });
  return Object.assign(server, {
    ask: (method: string, path: string, body?: unknown, token = options.masterToken) =>
      ask(server.url, { method, path, body, token }),
  });
}

function configure(
  { folder, port }: Place,
  peer: Peer,
  peers: readonly Peer[],
  { minTtlMs = 200, masterToken }: ConsulServerOptions,
): string {
  const file = join(folder, 'consul.json');
  const acl = { enabled: true, default_policy: 'deny', tokens: { master: masterToken } };
  const settings = {
    server: true,
    node_name: peer.node,
    bootstrap_expect: peers.length,
    retry_join: peers.filter((other) => other !== peer).map(({ ports }) => `127.0.0.1:${ports.serf_lan}`),
    retry_interval: '500ms',
    data_dir: join(folder, 'data'),
    bind_addr: '127.0.0.1',
    client_addr: '127.0.0.1',
    ports: { http: port, dns: -1, grpc: -1, serf_wan: -1, ...peer.ports },
    session_ttl_min: `${minTtlMs}ms`,
    performance: { raft_multiplier: 1 },
    limits: { http_max_conns_per_client: 1_000 },
    disable_update_check: true,
    log_level: 'warn',
    ...(masterToken !== undefined && { acl }),
  };
  writeFileSync(file, JSON.stringify(settings));
  return file;
}

interface Question {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly token?: string | undefined;
}

async function ask(url: string, { method, path, body, token }: Question): Promise<unknown> {
  const response = await fetch(`${url}/v1/${path}`, {
    method,
    ...(token !== undefined && { headers: { 'x-consul-token': token } }),
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    signal: AbortSignal.timeout(5_000),
  });
  const said = await response.text();
  if (response.status === 404) return undefined;
  if (!response.ok) throw new Error(said);
  return JSON.parse(said) as unknown;
}

/** A leader that has just been elected refuses writes for a moment. */
async function isLed(url: string, token: string | undefined): Promise<void> {
  await ask(url, { method: 'PUT', path: 'kv/started', body: 'yes', token });
  await ask(url, { method: 'DELETE', path: 'kv/started', token });
}
