import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { type DataSourceOptions } from 'typeorm';

import { unfenced, typeormStore } from 'nestjs-distributed-lock/typeorm';

import { startStopping } from '../servers/index.js';
import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { contents, Owners, seed, type Owner } from './owners.js';
import { guardedPaths, keyOf } from './stopped-owner.js';
import type { Outcome, StoppedOwnerOrder } from './stopped-owner-process.js';

const LIMIT_MS = 240_000;
const SCRIPT = join(__dirname, 'stopped-owner-process.ts');

type Stop = Pick<StoppedOwnerOrder, 'stopsAt' | 'guarded' | 'ttlMs'>;

/** What the process said of its writes, and the rows before and after it. */
interface Witnessed {
  readonly outcomes: readonly Outcome[];
  readonly before: object;
  readonly after: object;
}

const HOLDING: Stop = { stopsAt: 'holding', guarded: true, ttlMs: 1_500 };
/** Before they are stopped, all writes have to get past their checks within a lease, also on a busy machine. */
const SENDING: Stop = { stopsAt: 'sending', guarded: true, ttlMs: 5_000 };
const UNGUARDED: Stop = { ...SENDING, guarded: false };

describeOnEachDatabase('A process that was stopped for three ttls and goes on', (start, dialect) => {
  // On SQLite a process that is stopped between BEGIN and COMMIT keeps all others out of the file, and on MariaDB and
  // MySQL these many open transactions wait for each other's gap locks. guarded-writes-races.spec.ts has late
  // statements on all of them.
  const stops = dialect === 'postgres' ? [HOLDING, SENDING, UNGUARDED] : [HOLDING];
  const witnessed = new Map<Stop, Witnessed>();

  // Side by side, each on a database of its own: most of it is waiting.
  beforeAll(async () => {
    const all = stops.map(async (stop) => void witnessed.set(stop, await witness(await start(), stop)));
    const failed = (await Promise.allSettled(all)).filter((each) => each.status === 'rejected');
    for (const { reason } of failed) throw reason;
  }, LIMIT_MS);

  const of = (stop: Stop): Witnessed => {
    const found = witnessed.get(stop);
    if (!found) throw new Error('this process did not run');
    return found;
  };

  it('reads that its lease is lost before it calls anybody, and changes no row by any guarded path', () => {
    const { outcomes, before, after } = of(HOLDING);
    expect(outcomes).toEqual(
      guardedPaths.map(({ name }) => ({ path: name, firstRead: 'LEASE_LOST', section: 'LEASE_LOST' })),
    );
    expect(after).toEqual(before);
  });

  if (dialect !== 'postgres') return;

  it('changes no row by writes that had passed all its own checks before it was stopped: the database refuses them', () => {
    const { outcomes, before, after } = of(SENDING);
    expect(outcomes.filter(({ write }) => write === undefined)).toEqual([]);
    expect(outcomes.filter(({ write }) => write === 'FENCED_OUT').length).toBeGreaterThan(0);
    expect(after).toEqual(before);
  });

  it('changes rows by such writes when there is no guard: the check can see the fault', () => {
    const { outcomes, before, after } = of(UNGUARDED);
    const passed = outcomes.filter(({ write }) => write === undefined).map(({ path }) => path);
    expect(passed).toEqual(
      expect.arrayContaining([
        'repository.save(row) of a loaded row',
        'inside a transaction',
        'repository.update(criteria, values)',
        'repository.insert(values)',
        'repository.remove(row)',
      ]),
    );
    expect(after).not.toEqual(before);
  });
});

async function witness(database: TestDatabase, stop: Stop): Promise<Witnessed> {
  const leases = await database.connect();
  const owners = await Owners.on(database, undefined, typeormStore({ dataSource: leases }));
  try {
    const successor = await owners.add();
    await successor.locks.withLock('invoice:warm-up', () => undefined);
    await seed(successor, ...guardedPaths.map((_, index) => String(index)), 'other');
    for (const [index, { given }] of guardedPaths.entries())
      await unfenced('the row as the path needs it', async () => given?.(successor, String(index)));
    await leases.destroy();
    const before = await contents(successor);
    const outcomes = await afterAStop(successor, stop);
    return { outcomes, before, after: await contents(successor) };
  } finally {
    await owners.stop();
  }
}

/** What the process says of its writes, when a successor has taken all its locks meanwhile and written nothing yet. */
async function afterAStop(successor: Owner, stop: Stop): Promise<Outcome[]> {
  const { url, database } = successor.dataSource.options as { url?: string; database?: string };
  const source = { type: successor.dataSource.options.type, url, database, enableWAL: true };
  const order: StoppedOwnerOrder = { source: source as DataSourceOptions, ...stop };
  const process = startStopping<Outcome[]>(SCRIPT, order);
  try {
    await process.stopped();
    const stoppedAtMs = performance.now();
    // One after the other: all at once would have to share the time that each has for its fence.
    for (const index of guardedPaths.keys())
      await successor.locks.acquire(keyOf(index), { ttlMs: LIMIT_MS, waitMs: LIMIT_MS });
    await sleep(Math.max(0, stoppedAtMs + 3 * stop.ttlMs - performance.now()));
    return await process.answer();
  } finally {
    process.kill();
  }
}
