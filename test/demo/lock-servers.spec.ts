import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { locate } from '../servers/binaries.mjs';
import {
  describeWithServers,
  startConsul,
  startEtcd,
  startRedis,
  startRedisCluster,
  startRedisSentinel,
  startZooKeeper,
} from '../servers/index.js';
import { COMPILE_TIMEOUT_MS, compileDemo } from './demo-run.js';
import { expectToAddUpOn } from './few-faults.js';
import { RunAhead } from './run-ahead.js';

/** A server, or several, and how `--store` names them. */
interface Started {
  readonly store: string;
  stop(): Promise<unknown>;
}

const STORES = [
  ['redis+sentinel', 'redis', sentinel],
  ['redis+cluster', 'redis', cluster],
  ['redlock', 'redis', redlock],
  ['etcd', 'etcd', etcd],
  ['zookeeper', 'zookeeper', zookeeper],
  ['consul', 'consul', consul],
] as const;

async function sentinel(): Promise<Started> {
  const { sentinels, name, stop } = await startRedisSentinel();
  return { store: `redis+sentinel://${listed(sentinels)}/${name}`, stop };
}

async function cluster(): Promise<Started> {
  const { nodes, stop } = await startRedisCluster();
  return { store: `redis+cluster:${nodes.map(({ url }) => url).join(',')}`, stop };
}

async function redlock(): Promise<Started> {
  const servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
  const stop = () => Promise.all(servers.map((each) => each.stop()));
  return { store: `redlock:${servers.map(({ url }) => url).join(',')}`, stop };
}

async function etcd(): Promise<Started> {
  const server = await startEtcd({ electionMs: 1_000 }); // as etcd itself has it: no lease is shorter than two seconds
  return { store: `etcd:${server.url}`, stop: () => server.stop() };
}

async function zookeeper(): Promise<Started> {
  const server = await startZooKeeper();
  return { store: `zookeeper:${listed([server])}`, stop: () => server.stop() };
}

async function consul(): Promise<Started> {
  const server = await startConsul();
  return { store: `consul:${server.url}`, stop: () => server.stop() };
}

async function runOn(start: () => Promise<Started>, own: string): Promise<void> {
  const { store, stop } = await start();
  try {
    mkdirSync(own);
    await expectToAddUpOn(store, own);
  } finally {
    await stop();
  }
}

function listed(servers: readonly { readonly host: string; readonly port: number }[]): string {
  return servers.map(({ host, port }) => `${host}:${port}`).join(',');
}

/** Seconds, and minutes on a busy machine. */
const RUN_TIMEOUT_MS = 600_000;
/** While one run waits for a lease to end, the next one works. */
const AT_ONCE = 2;

const folder = mkdtempSync(join(tmpdir(), 'demo-spec-'));
const runs = STORES.filter(([, kind]) => locate(kind) !== null).map(
  ([name, , start]) => new RunAhead(name, () => runOn(start, join(folder, name))),
);

beforeAll(() => compileDemo(), COMPILE_TIMEOUT_MS);
afterAll(async () => {
  await Promise.all(runs.map((run) => run.over()));
  rmSync(folder, { recursive: true });
});

describe.each(STORES)('the demo with --store %s', (name, kind) => {
  describeWithServers([kind], 'on real servers', () => {
    it(
      'charges every invoice once while messages come twice and workers are paused, killed and left without answers',
      async () => {
        const i = runs.findIndex((run) => run.name === name);
        for (const run of runs.slice(i, i + AT_ONCE)) void run.begin();
        await runs[i]?.begin();
      },
      RUN_TIMEOUT_MS,
    );
  });
});
