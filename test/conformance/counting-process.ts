import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { LockService } from 'nestjs-distributed-lock';

import { storeAt, type StorePlace } from './store-at.js';

/** What one counting process is told, as JSON in its first argument. */
export interface CountingOrder extends StorePlace {
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
    service.withLock('counter', { ttlMs: 15_000, waitMs: 300_000 }, async ({ token }) => {
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

await count(JSON.parse(process.argv[2] ?? '') as CountingOrder);
