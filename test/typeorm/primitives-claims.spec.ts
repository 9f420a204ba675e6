import type { DataSource } from 'typeorm';

import { claimBatch, leaseBatch, type LeasedRow } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { connectAll, everywhere, Job, Order } from './primitives-model.js';

const JOBS = 300;
const ROUNDS = 200;
const LONG_MS = 120_000;

describeOnEachDatabase('Claims of rows', (start, dialect) => {
  let database: TestDatabase;
  let sources: DataSource[];
  let source: DataSource;
  let other: DataSource;

  beforeAll(async () => {
    database = await start();
    sources = await connectAll(database, 3);
    [source, other] = sources as [DataSource, DataSource];
  });
  beforeEach(() => source.getRepository(Job).clear());
  afterAll(async () => {
    for (const each of sources) await each.destroy();
    await database.stop();
  });

  const jobs = (of = source) => of.getRepository(Job);
  const add = (count: number) =>
    jobs().insert(Array.from({ length: count }, (_, i) => ({ id: i + 1, claim: {} as Job['claim'] })));
  const ready = (limit: number) => ({ where: { status: 'READY' }, order: { id: 'ASC' as const }, limit });
  const lease = (of = source, ttlMs = LONG_MS, limit = 1) => leaseBatch(jobs(of), { ...ready(limit), ttlMs });
  const done = { status: 'DONE', done: () => 'done + 1' };
  const countOf = async (): Promise<number[]> => (await jobs().find()).map((job) => job.done);

  describe('leaseBatch()', () => {
    it('gives each of hundreds of rows to exactly one of several workers', async () => {
      await add(JOBS);
      const claimed: number[] = [];
      await everywhere(sources, 2, async (each) => {
        for (;;) {
          const batch = await lease(each, LONG_MS, 11);
          // SQLite has no locks on rows: a worker may get none because others were faster with all it had seen.
          if (
            batch.length === 0 &&
            (await jobs(each).countBy({ status: 'READY', claim: { token: 0 } })) === 0
          )
            return;
          for (const job of batch) {
            claimed.push(job.row.id);
            await job.complete(done);
          }
        }
      });
      expect(claimed.sort((a, b) => a - b)).toEqual(Array.from({ length: JOBS }, (_, i) => i + 1));
      expect((await countOf()).every((times) => times === 1)).toBe(true);
    });

    it('takes rows in their order, at most as many as asked for, and tells the token', async () => {
      await add(5);
      const first = await lease(source, LONG_MS, 2);
      const second = await lease(other, LONG_MS, 9);
      expect(first.map(({ row }) => row.id)).toEqual([1, 2]);
      expect(second.map(({ row }) => row.id)).toEqual([3, 4, 5]);
      expect([...first, ...second].map(({ token }) => token)).toEqual([1, 1, 1, 1, 1]);
      expect(await lease()).toEqual([]);
      const [{ claim }] = (await jobs().findBy({ id: 1 })) as [Job];
      expect(claim).toEqual({
        ownerId: expect.stringMatching(/^[0-9a-f]{32}$/),
        token: 1,
        untilMs: expect.any(Number),
      });
      expect(Math.abs(claim.untilMs - LONG_MS - Date.now())).toBeLessThan(30_000);
    });

    /** The time of the database passes by itself: asks until the row is free. */
    const takeOver = async (of: DataSource): Promise<LeasedRow<Job>> => {
      for (;;) {
        const [job] = await lease(of);
        if (job) return job;
      }
    };

    it('gives the row of a claimer whose time is over to the next; the late one can neither extend nor complete', async () => {
      await add(1);
      const [late] = (await lease(source, 20)) as [LeasedRow<Job>];
      const next = await takeOver(other);
      expect(next.token).toBeGreaterThan(late.token);
      const lost = {
        code: 'LEASE_LOST',
        reason: 'taken-over',
        message: expect.stringContaining('Nothing was written'),
      };
      await expect(late.complete(done)).rejects.toMatchObject(lost);
      await expect(late.extend()).rejects.toMatchObject(lost);
      expect(await late.release()).toBe('already-gone');
      expect(await lease()).toEqual([]);
      await next.complete(done);
      await expect(next.complete(done)).rejects.toMatchObject(lost);
      expect(await countOf()).toEqual([1]);
    });

    it('completes once, however the late one and the next race, in each of hundreds of rounds', async () => {
      const byTheLate = { 'late first': 0, 'next first': 0, 'at once': 0 };
      for (let round = 0; round < ROUNDS; round += 1) {
        const order = (['late first', 'next first', 'at once'] as const)[round % 3] ?? 'at once';
        await jobs().insert({ id: round, claim: {} as Job['claim'] });
        const [late] = (await lease(source, 1 + (round % 4))) as [LeasedRow<Job>];
        const completeLate = () => late.complete(done).then(() => (byTheLate[order] += 1));
        const completeNext = async () => (await lease(other))[0]?.complete(done);
        if (order === 'late first') await completeLate();
        const next = order === 'next first' ? (await takeOver(other)).complete(done) : completeNext();
        const ends = await Promise.allSettled([order === 'late first' ? undefined : completeLate(), next]);
        const failures = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []));
        for (const failure of failures) expect(failure).toMatchObject({ code: 'LEASE_LOST' });
        expect(await jobs().findOneByOrFail({ id: round })).toMatchObject({ done: 1 });
      }
      expect(byTheLate).toMatchObject({ 'late first': Math.ceil(ROUNDS / 3), 'next first': 0 });
    });

    it('is longer after extend(), however often, and free after release()', async () => {
      await add(1);
      const [job] = (await lease(source, 30)) as [LeasedRow<Job>];
      const until = async () => (await jobs().findOneByOrFail({ id: 1 })).claim.untilMs;
      const ends = [await until()];
      for (let i = 0; i < 3; i += 1) {
        await job.extend(LONG_MS);
        ends.push(await until());
      }
      expect([...new Set(ends)].sort((a, b) => a - b)).toEqual(ends);
      await job.extend(1);
      expect(await until()).toBeGreaterThan(ends.at(-1) as number);
      expect(await lease(other)).toEqual([]);
      expect(await job.release()).toBe('released');
      const [next] = (await lease(other)) as [LeasedRow<Job>];
      expect(next.token).toBe(2);
    });

    if (dialect === 'mysql') {
      it('is not misled by a driver that counts changed rows only (C109)', async () => {
        const counting = await database.connect({ entities: [Job], flags: ['-FOUND_ROWS'] });
        await add(1);
        const [job] = (await lease(counting)) as [LeasedRow<Job>];
        for (let i = 0; i < 20; i += 1) await job.extend();
        await job.complete({});
        await counting.destroy();
      });
    }

    it('completes as a part of a transaction, and is undone with it', async () => {
      await add(1);
      const [job] = (await lease()) as [LeasedRow<Job>];
      const failing = source.transaction(async (manager) => {
        await job.complete(done, manager);
        throw new Error('rolled back');
      });
      await expect(failing).rejects.toThrow('rolled back');
      await job.complete(done);
      expect(await countOf()).toEqual([1]);
    });

    it('refuses what cannot work, by name', async () => {
      const refused = (why: string) => ({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining(why),
      });
      await expect(leaseBatch(jobs(), { ...ready(0), ttlMs: 1 })).rejects.toMatchObject(
        refused('limit is 0'),
      );
      await expect(leaseBatch(jobs(), { ...ready(1), ttlMs: 0 })).rejects.toMatchObject(
        refused('ttlMs is 0'),
      );
      const orders = source.getRepository(Order);
      const none = leaseBatch(orders, { where: {}, limit: 1, ttlMs: 1 });
      await expect(none).rejects.toMatchObject(refused('@Column(() => RowClaim)'));
    });
  });

  if (dialect === 'sqlite') {
    it('claimBatch() says on SQLite what to use instead', async () => {
      await expect(claimBatch(jobs(), ready(1), () => undefined)).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining('leaseBatch()'),
      });
    });
    return;
  }

  describe('claimBatch()', () => {
    it('gives each of hundreds of rows to exactly one of several workers', async () => {
      await add(JOBS);
      const claimed: number[] = [];
      const claim = (each: DataSource) =>
        claimBatch(jobs(each), ready(7), async (rows, manager) => {
          for (const { id } of rows) await manager.update(Job, { id }, done);
          return rows.map(({ id }) => id);
        });
      await everywhere(sources, 2, async (each) => {
        // None free may only mean that others have locked the last ones, which they then do.
        for (let ids = await claim(each); ids; ids = await claim(each)) claimed.push(...ids);
      });
      expect(claimed.sort((a, b) => a - b)).toEqual(Array.from({ length: JOBS }, (_, i) => i + 1));
      expect((await countOf()).every((times) => times === 1)).toBe(true);
    });

    it('passes over rows that others have, without waiting; a plain read would show them (positive control)', async () => {
      await add(3);
      await claimBatch(jobs(), ready(2), async (mine) => {
        expect(mine.map(({ id }) => id)).toEqual([1, 2]);
        const theirs = await claimBatch(jobs(other), ready(2), (rows) => rows.map(({ id }) => id));
        expect(theirs).toEqual([3]);
        expect((await jobs(other).find({ order: { id: 'ASC' } })).map(({ id }) => id)).toEqual([1, 2, 3]);
      });
    });

    it('gives rows back when the work fails, and does not run it for nothing', async () => {
      const fail = () => {
        throw new Error('broken');
      };
      expect(await claimBatch(jobs(), ready(1), fail)).toBeUndefined();
      await add(1);
      await expect(claimBatch(jobs(), ready(1), fail)).rejects.toThrow('broken');
      expect(await claimBatch(jobs(other), ready(1), ([job]) => job?.id)).toBe(1);
    });
  });
});
