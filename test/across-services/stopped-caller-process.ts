import { createRequire } from 'node:module';

import { fencingHeaders, LockService } from 'nestjs-distributed-lock';
import { guardDataSource, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource, type DataSourceOptions } from 'typeorm';

import { Invoice, post, type Answer } from './services.js';

/** What the process that gets stopped is told, as JSON in its first argument. */
export interface StoppedCallerOrder {
  readonly source: DataSourceOptions;
  readonly ttlMs: number;
  readonly key: string;
  /** The routes of service B that it calls once it goes on, one after the other. */
  readonly urls: readonly string[];
}

/** Stops itself between the moment in which it has read its token and the call, where nothing can warn it any more. */
async function run({ source, ttlMs, key, urls }: StoppedCallerOrder): Promise<void> {
  const driver: unknown =
    source.type === 'better-sqlite3' ? createRequire(import.meta.url)('libsql') : undefined;
  const withDriver = { ...source, ...(driver ? { driver } : {}), entities: [Invoice] } as DataSourceOptions;
  const dataSource = await new DataSource(withDriver).initialize();
  const locks = new LockService({ stores: { default: typeormStore({ dataSource }) } });
  guardDataSource(dataSource, locks);
  // The self-test of the guards comes with the first lock, and may take longer than a short lease allows.
  await locks.withLock('invoice:warm-up', { ttlMs: 60_000, waitMs: 60_000 }, () => undefined);
  // To take the lock may take longer than a short lease lasts, and where even shortening it does, it is lost already.
  const lease = await locks.acquire(key, { ttlMs: 60_000, waitMs: 0 });
  const headers = await lease.run(() => fencingHeaders());
  await lease.extend(ttlMs).catch(() => undefined);
  process.kill(process.pid, 'SIGSTOP');
  const answers: Answer[] = [];
  for (const url of urls) answers.push(await post(url, headers, { by: 'the stopped caller' }));
  process.stdout.write(JSON.stringify(answers), () => process.exit(0));
}

await run(JSON.parse(process.argv[2] ?? '') as StoppedCallerOrder);
