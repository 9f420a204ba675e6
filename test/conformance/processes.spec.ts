import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { createLockTables } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { describeWithServers, startPostgres, startRedis } from '../servers/index.js';
import { startCounting } from './counting.js';
import type { CountingOrder } from './counting-process.js';

const INCREMENTS = 4;
const LIMIT_MS = 120_000;

describe('processes that count under one lock', () => {
  it.each([true, false])(
    'lose no increment on one SQLite file that they all write to, WAL %s (C111)',
    async (enableWAL) => {
      const folder = mkdtempSync(join(tmpdir(), 'lock-sqlite-'));
      const place = join(folder, 'app.db');
      const driver: unknown = createRequire(__filename)('libsql');
      await createLockTables(new DataSource({ type: 'better-sqlite3', driver, database: place, enableWAL }));
      await countIn({ place, enableWAL });
      rmSync(folder, { recursive: true });
    },
    LIMIT_MS,
  );
});

describeWithServers(['redis'], 'processes that count under one lock on Redis', () => {
  it(
    'lose no increment when the server is killed and comes back with its data, and none of them ends badly',
    async () => {
      const server = await startRedis({ appendOnly: true });
      await countThroughRestart(server).finally(() => server.stop());
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
      await countThroughRestart(server).finally(() => server.stop());
    },
    LIMIT_MS,
  );
});

async function countIn(where: Pick<CountingOrder, 'place' | 'enableWAL'>): Promise<void> {
  const counting = startCounting(where, INCREMENTS);
  await counting.ended;
  counting.expectExact();
  counting.remove();
}

interface Restartable {
  readonly url: string;
  kill(): Promise<void>;
  start(): Promise<void>;
}

async function countThroughRestart(server: Restartable): Promise<void> {
  const counting = startCounting({ place: server.url }, INCREMENTS * 2);
  let ended = false;
  const watched = counting.ended.finally(() => (ended = true));
  while (counting.sections() < 10 && !ended) await pause(5);
  await server.kill();
  const countedBefore = counting.sections();
  await pause(700);
  expect(counting.sections() - countedBefore).toBeLessThanOrEqual(1); // the one that was inside may finish
  await server.start();
  await watched;
  counting.expectExact();
  counting.remove();
}

function pause(durationMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, durationMs));
}
