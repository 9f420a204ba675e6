import { IdempotencyService, type IdempotencyStore } from 'nestjs-distributed-lock';

import { describeOnEachSharedStore, type StorePlace } from './each-store.js';
import { ask, claimOn, done, LONG_MS, newId, settle, stateOf, take } from './record-steps.js';

const CALLS = 100;

describeOnEachSharedStore('processes that share a store', (start) => {
  let place: StorePlace;
  let stores: IdempotencyStore[];

  beforeAll(async () => {
    place = await start();
    stores = [place.connect(), place.connect()];
    await Promise.all(stores.map((store) => store.read(newId(), 20_000))); // connecting takes longer than a command may
  });
  afterAll(async () => {
    await Promise.all(stores.map((store) => store.close()));
    await place.stop();
  });

  it.each([0, LONG_MS])(
    'C062: of 100 first calls at once with one new key one runs; the others are answered or told to come back (waitMs %d)',
    async (waitMs) => {
      const services = stores.map((store) => new IdempotencyService({ store }));
      const key = `first:${newId()}`;
      let runs = 0;
      const call = (service: IdempotencyService): Promise<string> =>
        service
          .runOnce(key, { waitMs, leaseMs: LONG_MS }, () => `run ${(runs += 1)}`)
          .catch(
            (error: { readonly code?: string; readonly message: string }) => error.code ?? error.message,
          );
      const answers = await Promise.all(
        Array.from({ length: CALLS }, (_, nr) => call(services[nr % 2] as IdempotencyService)),
      );
      expect(runs).toBe(1);
      const expected = waitMs === 0 ? ['run 1', 'IDEMPOTENCY_IN_PROGRESS'] : ['run 1'];
      expect(answers.filter((answer) => !expected.includes(answer))).toEqual([]);
      expect(answers).toContain('run 1');
    },
  );

  it.each([3 * 60_000, -3 * 60_000])(
    'C048: a process whose clock is %d ms off neither takes over, nor forgets, nor keeps longer',
    async (skewMs) => {
      const [store, skewed] = stores as [IdempotencyStore, IdempotencyStore];
      const [running, answered] = [claimOn(newId()), claimOn(newId())];
      const first = await take(store, running);
      await take(store, answered);
      await settle(store, answered, done('1'));
      const now = Date.now;
      const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + skewMs);
      try {
        const answer = await ask(skewed, claimOn(running.id));
        expect(answer).toMatchObject({ kind: 'running' });
        expect(answer.kind === 'running' && answer.retryAfterMs).toBeLessThanOrEqual(LONG_MS);
        expect(await ask(skewed, claimOn(answered.id))).toMatchObject({ kind: 'done' });
        await skewed.purge(1_000, LONG_MS);
        const mine = claimOn(newId());
        const { fence } = await take(skewed, mine);
        expect(Math.abs(fence - first.fence)).toBeLessThan(60_000_000); // microseconds of the store's clock
        await settle(skewed, mine, done('1', 1));
        while ((await stateOf(store, mine.id)) !== undefined) await new Promise(setImmediate);
      } finally {
        clock.mockRestore();
      }
      expect(await stateOf(store, running.id)).toBe('running');
      expect(await stateOf(store, answered.id)).toBe('done');
    },
  );
});
