import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { type DataSourceOptions } from 'typeorm';

import { unfenced, typeormStore } from 'nestjs-distributed-lock/typeorm';

import { startStopping } from '../servers/index.js';
import { describeOnEachDatabase } from './databases.js';
import { contents, Owners, seed, type Owner } from './owners.js';
import { guardedPaths, keyOf } from './stopped-owner.js';
import type { Outcome, StoppedOwnerOrder } from './stopped-owner-process.js';

const TTL_MS = 3_000;
const LIMIT_MS = 120_000;
const SCRIPT = join(__dirname, 'stopped-owner-process.ts');

describeOnEachDatabase('A process that was stopped for three ttls and goes on', (start, type) => {
  let owners: Owners;
  let successor: Owner;

  beforeEach(async () => {
    const database = await start();
    const leases = await database.connect();
    owners = await Owners.on(database, undefined, typeormStore({ dataSource: leases }));
    successor = await owners.add();
    for (const [index, { given }] of guardedPaths.entries()) {
      await seed(successor, String(index));
      await unfenced('the row as the path needs it', async () => given?.(successor, String(index)));
    }
    await seed(successor, 'other');
    await leases.destroy();
  }, LIMIT_MS);
  afterEach(() => owners.stop());

  /** What the process says of its writes, when a successor has taken all its locks meanwhile and written nothing yet. */
  async function afterAStop(stop: Pick<StoppedOwnerOrder, 'stopsAt' | 'guarded'>): Promise<Outcome[]> {
    const { url, database } = successor.dataSource.options as { url?: string; database?: string };
    const source = { type: successor.dataSource.options.type, url, database, enableWAL: true };
    const order: StoppedOwnerOrder = { source: source as DataSourceOptions, ttlMs: TTL_MS, ...stop };
    const process = startStopping<Outcome[]>(SCRIPT, order);
    try {
      await process.stopped();
      const stoppedAtMs = performance.now();
      await Promise.all(
        guardedPaths.map((_, index) =>
          successor.locks.acquire(keyOf(index), { ttlMs: 60_000, waitMs: 30_000 }),
        ),
      );
      await sleep(Math.max(0, stoppedAtMs + 3 * TTL_MS - performance.now()));
      return await process.answer();
    } finally {
      process.kill();
    }
  }

  it(
    'reads that its lease is lost before it calls anybody, and changes no row by any guarded path',
    async () => {
      const before = await contents(successor);
      const outcomes = await afterAStop({ stopsAt: 'holding', guarded: true });
      expect(outcomes).toEqual(
        guardedPaths.map(({ name }) => ({ path: name, firstRead: 'LEASE_LOST', section: 'LEASE_LOST' })),
      );
      expect(await contents(successor)).toEqual(before);
    },
    LIMIT_MS,
  );

  // On SQLite a process that is stopped between BEGIN and COMMIT keeps all others out of the file, and on MariaDB these
  // many open transactions wait for each other's gap locks. guarded-writes-races.spec.ts has late statements on all three.
  if (type !== 'postgres') return;

  it(
    'changes no row by writes that had passed all its own checks before it was stopped: the database refuses them',
    async () => {
      const before = await contents(successor);
      const outcomes = await afterAStop({ stopsAt: 'sending', guarded: true });
      expect(outcomes.filter(({ write }) => write === undefined)).toEqual([]);
      expect(outcomes.filter(({ write }) => write === 'FENCED_OUT').length).toBeGreaterThan(0);
      expect(await contents(successor)).toEqual(before);
    },
    LIMIT_MS,
  );

  it(
    'changes rows by such writes when there is no guard: the check can see the fault',
    async () => {
      const before = await contents(successor);
      const outcomes = await afterAStop({ stopsAt: 'sending', guarded: false });
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
      expect(await contents(successor)).not.toEqual(before);
    },
    LIMIT_MS,
  );
});
