import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { LockService } from 'nestjs-distributed-lock';
import { createLockTables } from 'nestjs-distributed-lock/typeorm';

import {
  describeWithServers,
  mySqlKin,
  startEtcd,
  startPostgres,
  startRedis,
  startZooKeeper,
  type TestServer,
} from '../servers/index.js';
import { expectLossLearned, startHolder, type Holder } from './holder.js';
import { lockDatabaseAt, storeAt } from './store-at.js';
import { succeed } from './succession.js';

/** Kinds of server and file that a lock of another process may be on, with a ttl that they all can keep. */
const kinds = [
  { title: 'redis', servers: ['redis'], start: () => startRedis() },
  { title: 'etcd', servers: ['etcd'], start: () => startEtcd() },
  { title: 'zookeeper', servers: ['zookeeper'], start: () => startZooKeeper() },
  { title: 'the lease table on PostgreSQL', servers: ['postgres'], start: () => startPostgres() },
  ...mySqlKin.map(({ kind, name, start }) => ({
    title: `the lease table on ${name}`,
    servers: [kind],
    start: () => start(),
  })),
  { title: 'the lease table in a SQLite file', servers: [], start: sqliteFile },
] as const;

const TTL_MS = 2_000;

describe.each(kinds)('a process that holds a lock on $title', ({ servers, start }) => {
  describeWithServers(servers, 'and gets into trouble', () => {
    let server: Pick<TestServer, 'url' | 'stop'>;
    let successor: LockService;
    let holder: Holder;

    beforeAll(async () => {
      server = await start();
      await layOutTables(server.url);
      successor = new LockService({ stores: { default: storeAt({ place: server.url }) } });
      await successor.open();
    });
    afterAll(async () => {
      await successor.close(0);
      await server.stop();
    });
    beforeEach(() => {
      holder = startHolder({ place: server.url, key: 'k', ttlMs: TTL_MS });
    });
    afterEach(() => holder.kill());

    it('by SIGKILL is succeeded within its ttl and a second (C126)', async () => {
      await holder.stopped();
      holder.kill();
      await (await succeed(successor, 'k', TTL_MS)).release();
    });

    it('by a stop beyond its ttl learns of its loss at the first read, before it calls anybody (C003)', async () => {
      await holder.stopped();
      const next = await successor.acquire('k', { waitMs: 60_000 });
      await expectLossLearned(holder, next);
    });
  });
});

async function sqliteFile(): Promise<Pick<TestServer, 'url' | 'stop'>> {
  const folder = await mkdtemp(join(tmpdir(), 'holders-'));
  return { url: join(folder, 'app.db'), stop: () => rm(folder, { recursive: true }) };
}

async function layOutTables(place: string): Promise<void> {
  const dataSource = lockDatabaseAt({ place });
  if (dataSource) await createLockTables(dataSource);
}
