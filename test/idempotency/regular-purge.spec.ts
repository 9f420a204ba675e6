import { setTimeout as sleep } from 'node:timers/promises';

import { Test, type TestingModule } from '@nestjs/testing';
import {
  DistributedLockModule,
  hasCode,
  IdempotencyService,
  LockEvents,
  LockService,
  memoryIdempotencyStore,
  memoryStore,
  type ApplicationEvent,
  type DistributedLockOptions,
  type IdempotencyEvent,
  type IdempotencyModuleOptions,
  type IdempotencyStore,
} from 'nestjs-distributed-lock';
import { ManualClock } from 'nestjs-distributed-lock/testing';
import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';
import type { DataSource } from 'typeorm';

import { describeWithServers } from '../servers/index.js';
import { bareStore } from './bare-store.js';
import { claimOn, done, newId, settle, stateOf, take } from './record-steps.js';
import { sourceOf, startPostgresRecords, startSqliteRecords, type RecordDatabase } from './databases.js';

function appWith(
  idempotency: IdempotencyModuleOptions,
  more: Partial<DistributedLockOptions> = {},
): Promise<TestingModule> {
  const options = { store: memoryStore({ clock: more.clock }), idempotency, ...more };
  const imports = [DistributedLockModule.forRoot(options)];
  return Test.createTestingModule({ imports }).compile();
}

/** As a database would be: it purges when it is told to. */
function tableLike(purge: IdempotencyStore['purge']): IdempotencyStore & { readonly close: jest.Mock } {
  return { ...bareStore(memoryIdempotencyStore()), purge, close: jest.fn(() => Promise.resolve()) };
}

/** Those that keep the process alive. */
function timers(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
}

function eventsOf(app: TestingModule): ApplicationEvent[] {
  const seen: ApplicationEvent[] = [];
  app.get(LockEvents).subscribe((event) => seen.push(event));
  return seen;
}

const DATABASES = [
  { name: 'PostgreSQL', servers: ['postgres'], start: startPostgresRecords },
  { name: 'SQLite', servers: [], start: startSqliteRecords },
] as const;

for (const { name, servers, start } of DATABASES) {
  describeWithServers(servers, `an application with records on ${name}`, () => {
    let database: RecordDatabase;
    let raw: DataSource;

    beforeAll(async () => {
      database = await start();
      await createIdempotencyTable(sourceOf(database));
      raw = await sourceOf(database).initialize();
    });
    afterAll(async () => {
      await raw.destroy();
      await database.stop();
    });

    const rows = async (): Promise<number> => {
      const [row] = await raw.query<[{ readonly n: unknown }]>(
        'SELECT count(*) AS n FROM idempotency_record',
      );
      return Number(row.n);
    };

    it('deletes what has expired by itself, in one process at a time, and leaves what runs', async () => {
      const store = typeormIdempotencyStore({ dataSource: sourceOf(database) });
      const [alive, kept] = [claimOn(newId()), claimOn(newId())];
      for (const claim of [alive, kept, ...Array.from({ length: 20 }, () => claimOn(newId()))]) {
        await take(store, claim);
        if (claim !== alive) await settle(store, claim, done('1', claim === kept ? 60_000 : 1));
      }
      const lockStore = memoryStore();
      const seen: IdempotencyEvent[] = [];
      const apps = await Promise.all(
        [1, 2].map(() =>
          appWith(
            {
              store: typeormIdempotencyStore({ dataSource: sourceOf(database) }),
              purgeEveryMs: 50,
              onEvent: (event) => seen.push(event),
            },
            { store: lockStore },
          ),
        ),
      );
      while ((await rows()) > 2) await sleep(10);
      expect(await stateOf(store, alive.id)).toBe('running');
      expect(await stateOf(store, kept.id)).toBe('done');
      await Promise.all(apps.map((app) => app.close()));
      const purged = seen.map((event) => (event.type === 'purged' ? event.records : 0));
      expect(purged.reduce((sum, records) => sum + records)).toBe(20);
      await store.close();
    });
  });
}

describe('the regular purge', () => {
  it.each([
    ['the store purges itself', memoryIdempotencyStore(), 1],
    ['it is Infinity', tableLike(() => Promise.resolve(0)), Infinity],
  ])('is off where %s', async (_, store, purgeEveryMs) => {
    const purge = jest.spyOn(store, 'purge');
    const clock = new ManualClock();
    const app = await appWith({ store, purgeEveryMs }, { clock });
    await clock.advance(60_000);
    expect(purge).not.toHaveBeenCalled();
    await app.close();
  });

  it.each([0, -1, NaN, '1h', null])('refuses %p at boot', async (purgeEveryMs) => {
    const options = { store: memoryIdempotencyStore(), purgeEveryMs: purgeEveryMs as number };
    await expect(appWith(options)).rejects.toThrow(
      /idempotency\.purgeEveryMs is .*; write a number of milliseconds/,
    );
  });

  it('comes about once an hour unless told otherwise', async () => {
    const clock = new ManualClock();
    const purge = jest.fn(() => Promise.resolve(0));
    const app = await appWith({ store: tableLike(purge) }, { clock });
    await clock.advance(29 * 60_000);
    expect(purge).toHaveBeenCalledTimes(0);
    await clock.advance(24 * 60 * 60_000);
    expect(purge.mock.calls.length).toBeGreaterThanOrEqual(24);
    expect(purge.mock.calls.length).toBeLessThanOrEqual(49);
    await app.close();
    expect(clock.armed).toBe(0);
  });

  it('keeps no process alive', async () => {
    const before = timers();
    const app = await appWith({ store: tableLike(() => Promise.resolve(0)) });
    expect(timers()).toBeLessThanOrEqual(before);
    await app.close();
  });

  it('tells of a purge that fails, and tries again', async () => {
    const purge = jest.fn(() => Promise.resolve(0)).mockRejectedValueOnce(new Error('no such table'));
    const app = await appWith({ store: tableLike(purge), purgeEveryMs: 5 });
    const seen = eventsOf(app);
    while (purge.mock.calls.length < 2) await sleep(1);
    await app.close();
    const ofPurge = seen.filter(({ type }) => type.startsWith('idempotency-'));
    expect(ofPurge.slice(0, 2)).toMatchObject([
      { type: 'idempotency-purge-failed', cause: new Error('no such table') },
      { type: 'idempotency-purged', records: 0 },
    ]);
  });
});

describe('a purge under way when the application closes', () => {
  it('stops after its batch, before the store is closed, and leaves nothing behind', async () => {
    const before = timers();
    let endBatch!: (records: number) => void;
    const purge = jest.fn(() => new Promise<number>((resolve) => (endBatch = resolve)));
    const store = tableLike(purge);
    const app = await appWith({ store });
    const [service, locks] = [app.get(IdempotencyService), app.get(LockService)];
    const purging = service.purge(locks, { batchSize: 10, pauseMs: 60_000 });
    while (purge.mock.calls.length === 0) await sleep(1);
    const closing = app.close();
    const refused = async (): Promise<boolean> =>
      service
        .runOnce('k', {}, () => 1)
        .then(
          () => false,
          (error: unknown) => hasCode(error, 'SHUTTING_DOWN'),
        );
    while (!(await refused())) await sleep(1);
    expect(store.close).not.toHaveBeenCalled();
    endBatch(10);
    await expect(purging).resolves.toBe(10);
    await closing;
    expect(store.close).toHaveBeenCalledTimes(1);
    expect(purge).toHaveBeenCalledTimes(1);
    expect(locks.busy).toBe(false);
    expect(timers()).toBeLessThanOrEqual(before);
  });

  it('does not wait out the pause between two batches', async () => {
    const purge = jest.fn(() => Promise.resolve(10));
    const app = await appWith({ store: tableLike(purge) });
    const purging = app
      .get(IdempotencyService)
      .purge(app.get(LockService), { batchSize: 10, pauseMs: 60_000 });
    while (purge.mock.calls.length === 0) await sleep(1);
    await app.close();
    await expect(purging).resolves.toBe(10);
  });
});
