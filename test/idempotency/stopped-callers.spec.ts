import { IdempotencyService, type IdempotencyStore } from 'nestjs-distributed-lock';

import { Caller } from './caller.js';
import { describeOnEachSharedStore, type StorePlace } from './each-store.js';

/** A command may take a third of it, on a busy machine. */
const LEASE_MS = 3_000;
const WAIT_MS = 20_000;

describeOnEachSharedStore('a process that is stopped past its lease (SIGSTOP)', (start) => {
  let place: StorePlace;
  let store: IdempotencyStore;
  let service: IdempotencyService;
  const records = new Map<string, unknown>();
  let caller: Caller;
  const running = { open: (): void => undefined, ended: [] as Promise<string>[] };
  const keys = ['returns', 'throws', 'looks', 'returns beside', 'throws beside'] as const;

  beforeAll(async () => {
    place = await start();
    store = place.connect();
    service = new IdempotencyService({ store });
    caller = new Caller({
      place: place.place ?? '',
      leaseMs: LEASE_MS,
      calls: [
        { key: 'returns', stopAt: 'after the effect', then: 'return' },
        { key: 'throws', stopAt: 'after the effect', then: 'throw' },
        { key: 'looks', stopAt: 'before the effect', then: 'look' },
        { key: 'returns beside', stopAt: 'after the effect', then: 'return' },
        { key: 'throws beside', stopAt: 'after the effect', then: 'throw' },
      ],
    });
    await caller.until('stopped', keys.length);
    caller.pause();
    const take = (key: string, work: () => Promise<string>): Promise<string> =>
      service.runOnce(key, { waitMs: WAIT_MS }, work);
    await Promise.all(keys.slice(0, 3).map((key) => take(key, () => Promise.resolve('second'))));
    await takeAndHold(take);
    for (const key of keys) records.set(key, await recordOf(key));
    await caller.resume();
  }, 120_000);
  afterAll(async () => {
    await caller.kill();
    await store.close();
    await place.stop();
  });

  /** Two successors that are at work when the first caller wakes up. */
  async function takeAndHold(
    take: (key: string, work: () => Promise<string>) => Promise<string>,
  ): Promise<void> {
    const open = new Promise<string>((resolve) => (running.open = () => resolve('second')));
    const begun = keys
      .slice(3)
      .map((key) => new Promise<void>((resolve) => running.ended.push(take(key, () => (resolve(), open)))));
    await Promise.all(begun);
  }

  async function recordOf(key: string): Promise<unknown> {
    const view = await service.inspect(key);
    return view && { ...view, expiresInMs: 0, leaseRemainingMs: view.leaseRemainingMs && 1 };
  }

  it('can neither complete, overwrite nor delete the records of its successors (C060)', async () => {
    for (const key of keys) expect([key, await recordOf(key)]).toEqual([key, records.get(key)]);
    expect(await service.inspect('returns')).toMatchObject({ state: 'done', attempt: 2 });
    expect(await service.inspect('throws beside')).toMatchObject({ state: 'running', attempt: 2 });
  });

  it('gets the answer of a successor that is done, whether it returns or throws itself', () => {
    for (const key of ['returns', 'throws'])
      expect(caller.endOf(key)).toMatchObject({ answer: 'second', code: null });
  });

  it('learns that its outcome is unknown when its successor is at work', async () => {
    for (const key of keys.slice(3))
      expect(caller.endOf(key)).toMatchObject({ code: 'IDEMPOTENCY_LEASE_LOST' });
    running.open();
    expect(await Promise.all(running.ended)).toEqual(['second', 'second']);
  });

  it('stops at its first look at the key that it would pass on, so that nothing outside is told twice (C060)', () => {
    expect(caller.effectsOf('looks')).toBe(0);
    expect(caller.endOf('looks')).toMatchObject({ answer: 'second' });
  });
});
