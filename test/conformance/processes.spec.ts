import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { createLockTables } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { describeWithServers, startEtcd, startPostgres, startRedis } from '../servers/index.js';
import { countThroughRestart, startCounting, type Crowd } from './counting.js';
import type { CountingOrder } from './counting-process.js';

/** Few that call again and again: who comes back meets the other processes each time. */
const REGULARS: Crowd = { callers: 3, increments: 4 };
/** Long enough for a server to be killed in the middle. */
const LONG: Crowd = { callers: 3, increments: 8 };
/** A hundred calls at once in each process, all of which have to be answered. */
const RUSH: Crowd = { callers: 100, increments: 1 };
/** On a machine that is busy with other things. */
const LIMIT_MS = 300_000;

describe('processes that count under one lock', () => {
  it.each([
    [true, RUSH],
    [false, REGULARS],
  ])(
    'lose no increment on one SQLite file that they all write to (WAL %s), and end by themselves: %j (C111)',
    async (enableWAL, crowd) => {
      const folder = mkdtempSync(join(tmpdir(), 'lock-sqlite-'));
      const place = join(folder, 'app.db');
      const driver: unknown = createRequire(__filename)('libsql');
      await createLockTables(new DataSource({ type: 'better-sqlite3', driver, database: place, enableWAL }));
      await countIn({ place, enableWAL }, crowd);
      rmSync(folder, { recursive: true });
    },
    LIMIT_MS,
  );
});

describeWithServers(['redis'], 'processes that count under one lock on Redis', () => {
  it(
    'lose no increment when each of them makes 100 calls at once, and end by themselves when all are answered',
    async () => {
      const server = await startRedis();
      await countIn({ place: server.url }, RUSH).finally(() => server.stop());
    },
    LIMIT_MS,
  );

  it(
    'lose no increment when the server is killed and comes back with its data, and none of them ends badly',
    async () => {
      const server = await startRedis({ appendOnly: true });
      await countThroughRestart({ place: server.url }, LONG, server).finally(() => server.stop());
    },
    LIMIT_MS,
  );
});

describeWithServers(['postgres'], 'processes that count under one lock on PostgreSQL', () => {
  it(
    'lose no increment when the server is killed and comes back with its data, and none of them ends badly',
    async () => {
      const server = await startPostgres();
      await createLockTables(new DataSource({ type: 'postgres', url: server.url }));
      await countThroughRestart({ place: server.url }, LONG, server).finally(() => server.stop());
    },
    LIMIT_MS,
  );
});

describeWithServers(['etcd'], 'processes that count under one lock on etcd', () => {
  it(
    'lose no increment when the server is killed and comes back with its data, and none of them ends badly',
    async () => {
      const server = await startEtcd();
      await countThroughRestart({ place: server.url }, LONG, server).finally(() => server.stop());
    },
    LIMIT_MS,
  );
});

async function countIn(where: Pick<CountingOrder, 'place' | 'enableWAL'>, crowd: Crowd): Promise<void> {
  const counting = startCounting(where, crowd);
  await counting.ended;
  counting.expectExact();
  counting.remove();
}
