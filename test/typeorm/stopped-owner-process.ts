import { createRequire } from 'node:module';

import { LockService, type Lease } from 'nestjs-distributed-lock';
import { guardDataSource, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource, type DataSourceOptions } from 'typeorm';

import { Invoice, InvoiceLine, Label } from './invoices.js';
import type { Owner } from './owners.js';
import { guardedPaths, keyOf } from './stopped-owner.js';

/** What the process that gets stopped is told, as JSON in its first argument. */
export interface StoppedOwnerOrder {
  readonly source: DataSourceOptions;
  readonly ttlMs: number;
  /** Where SIGSTOP hits: after the locks were taken, or when each write has passed every check of this process. */
  readonly stopsAt: 'holding' | 'sending';
  /** False: the positive control. */
  readonly guarded: boolean;
}

/** To take all locks, and to raise all fences, may take longer than a short lease lasts. */
const TAKEN_FOR_MS = 60_000;

/** Codes of the errors that one path met after the process went on; none where nothing was thrown. */
export interface Outcome {
  readonly path: string;
  /** Of the first question to the lease, before anything else was called. */
  readonly firstRead: string | undefined;
  readonly write: string | undefined;
  /** Of the whole section under the lock, which the write is a part of. */
  readonly section: string | undefined;
}

async function run(order: StoppedOwnerOrder): Promise<void> {
  const dataSource = new DataSource(withDriver(order.source));
  await dataSource.initialize();
  const gate = order.stopsAt === 'sending' ? new Gate(dataSource) : undefined;
  const locks = new LockService({ stores: { default: typeormStore({ dataSource }) } });
  if (order.guarded) guardDataSource(dataSource, locks);
  const owner: Owner = {
    dataSource,
    locks,
    events: [],
    repository: (entity) => dataSource.getRepository(entity),
    stop: () => Promise.resolve(),
  };
  await warmUp(locks);
  const leases: Lease[] = [];
  for (const index of guardedPaths.keys()) {
    leases.push(await locks.acquire(keyOf(index), { ttlMs: TAKEN_FOR_MS, waitMs: 0 }));
  }
  // Where even this takes longer than the lease that it asks for, that is lost already.
  await Promise.allSettled(leases.map((lease) => lease.extend(order.ttlMs)));
  if (order.stopsAt === 'holding') process.kill(process.pid, 'SIGSTOP');
  const outcomes = await Promise.all(leases.map((lease, index) => attempt(owner, lease, index, gate)));
  process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
}

/** The self-test of the guards comes with the first lock, and may take longer than a short lease allows. */
async function warmUp(locks: LockService): Promise<void> {
  await locks.withLock('invoice:warm-up', { ttlMs: 60_000, waitMs: 60_000 }, () => undefined);
}

async function attempt(owner: Owner, lease: Lease, index: number, gate?: Gate): Promise<Outcome> {
  const path = guardedPaths[index];
  if (!path) throw new Error(`no path ${index}`);
  const firstRead = await codeOf(() => lease.assertHeld());
  let write: string | undefined;
  let entered = false;
  const section = await codeOf(() =>
    lease.run(async () => {
      entered = true;
      write = await codeOf(() => path.write(owner, String(index)));
      gate?.ended();
    }),
  );
  if (gate && !entered) {
    write = section;
    gate.ended();
  }
  return { path: path.name, firstRead, write, section };
}

async function codeOf(work: () => unknown): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    const { code, message } = error as { code?: string; message?: string };
    return code ?? message;
  }
}

/** Stops the process once a write of every path has come this far, and then lets them all go on. */
class Gate {
  #arrived = 0;
  #isOpen = false;
  #open: () => void = () => undefined;
  readonly #opened = new Promise<void>((resolve) => (this.#open = resolve));

  /** To be made before the guards are put on, so that it stands behind them. */
  constructor({ driver }: DataSource) {
    const create = driver.createQueryRunner.bind(driver);
    driver.createQueryRunner = (mode) => {
      const runner = create(mode);
      const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
      runner.query = (async (...args: unknown[]) => {
        if (/^(?:INSERT INTO|UPDATE|DELETE FROM)\s+(?!\S*lock_)/.test(String(args[0]))) await this.#pass();
        return query(...args);
      }) as typeof runner.query;
      return runner;
    };
  }

  /** Some ways need a guard: without one they end before they send anything. */
  ended(): void {
    if (!this.#isOpen) this.#count();
  }

  async #pass(): Promise<void> {
    if (!this.#isOpen) this.#count();
    await this.#opened;
  }

  #count(): void {
    this.#arrived += 1;
    if (this.#arrived < guardedPaths.length) return;
    process.kill(process.pid, 'SIGSTOP');
    this.#isOpen = true;
    this.#open();
  }
}

function withDriver(source: DataSourceOptions): DataSourceOptions {
  const entities = [Invoice, InvoiceLine, Label];
  if (source.type !== 'better-sqlite3') {
    return { ...source, entities, poolSize: guardedPaths.length + 5 } as DataSourceOptions;
  }
  return { ...source, entities, driver: createRequire(import.meta.url)('libsql') as unknown };
}

await run(JSON.parse(process.argv[2] ?? '') as StoppedOwnerOrder);
