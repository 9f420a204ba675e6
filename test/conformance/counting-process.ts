import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { redisStore } from 'nestjs-distributed-lock/redis';
import { typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

/** What one counting process is told, as JSON in its first argument. */
export interface CountingOrder {
  /** `redis://…`, `postgres://…`, or a path to a SQLite file. */
  readonly place: string;
  readonly enableWAL?: boolean;
  readonly callers: number;
  readonly increments: number;
  /** A file of that name and this process's id says that it has connected; all begin when one of that name exists. */
  readonly startFile: string;
  /** Holds the number that everybody counts up, without any protection of its own. */
  readonly counterFile: string;
  /** One line of JSON for each section: see {@link CountedSection}. */
  readonly historyFile: string;
}

/** Times of the machine's monotonic clock, which all its processes share, as decimal nanoseconds. */
export interface CountedSection {
  readonly token: number;
  readonly enteredAtNs: string;
  readonly leftAtNs: string;
}

async function count(order: CountingOrder): Promise<void> {
  const service = new LockService({ stores: { default: storeAt(order) } });
  await service.open();
  writeFileSync(`${order.startFile}.${process.pid}`, '');
  while (!existsSync(order.startFile)) await sleep(5);
  const increment = (): Promise<void> =>
    service.withLock('counter', { ttlMs: 10_000, waitMs: 60_000 }, async ({ token }) => {
      const enteredAtNs = String(process.hrtime.bigint());
      const read = Number(readFileSync(order.counterFile, 'utf8'));
      await sleep(1);
      writeFileSync(order.counterFile, String(read + 1));
      const section: CountedSection = { token, enteredAtNs, leftAtNs: String(process.hrtime.bigint()) };
      appendFileSync(order.historyFile, `${JSON.stringify(section)}\n`);
    });
  const caller = async (): Promise<void> => {
    for (let i = 0; i < order.increments; i += 1) await increment();
  };
  await Promise.all(Array.from({ length: order.callers }, caller));
  await service.close();
}

function storeAt({ place, enableWAL = true }: CountingOrder): LockStore {
  if (place.startsWith('redis:')) return redisStore({ url: place });
  if (place.startsWith('postgres:')) {
    return typeormStore({ dataSource: new DataSource({ type: 'postgres', url: place }) });
  }
  const driver: unknown = createRequire(import.meta.url)('libsql');
  return typeormStore({
    dataSource: new DataSource({ type: 'better-sqlite3', driver, database: place, enableWAL }),
  });
}

await count(JSON.parse(process.argv[2] ?? '') as CountingOrder);
