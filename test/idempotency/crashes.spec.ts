import { IdempotencyService, type IdempotencyStore, type RunOnceOptions } from 'nestjs-distributed-lock';

import type { Step } from './caller-process.js';
import { Caller } from './caller.js';
import { describeOnEachSharedStore, type StorePlace } from './each-store.js';

/** A command may take a third of it, on a busy machine. */
const LEASE_MS = 3_000;
const WAIT_MS = 20_000;

type Policy = 'rerun' | 'reject' | 'hook';

/** Effects of the call that was killed, and what the next one comes to under each policy. */
interface Row {
  readonly step: Step;
  readonly effects: number;
  readonly next: Readonly<Record<Policy, string>>;
}

const RUNS = 'runs';
const UNKNOWN = 'IDEMPOTENCY_OUTCOME_UNKNOWN';

const TABLE: readonly Row[] = [
  { step: 'before the claim', effects: 0, next: { rerun: RUNS, reject: RUNS, hook: RUNS } },
  { step: 'before the answer to the claim', effects: 0, next: { rerun: RUNS, reject: UNKNOWN, hook: RUNS } },
  { step: 'before the effect', effects: 0, next: { rerun: RUNS, reject: UNKNOWN, hook: RUNS } },
  { step: 'after the effect', effects: 1, next: { rerun: RUNS, reject: UNKNOWN, hook: 'found' } },
  { step: 'before the completion', effects: 1, next: { rerun: RUNS, reject: UNKNOWN, hook: 'found' } },
  {
    step: 'before the answer to the completion',
    effects: 1,
    next: { rerun: 'first', reject: 'first', hook: 'first' },
  },
];
const POLICIES: readonly Policy[] = ['rerun', 'reject', 'hook'];
const ROWS = TABLE.flatMap((row) =>
  POLICIES.map((policy) => ({ ...row, policy, key: `${row.step}, ${policy}` })),
);

describeOnEachSharedStore('a process that is killed (SIGKILL)', (start) => {
  let place: StorePlace;
  let store: IdempotencyStore;
  let caller: Caller;

  beforeAll(async () => {
    place = await start();
    store = place.connect();
    const calls = ROWS.map(({ key, step }) => ({ key, stopAt: step }));
    caller = new Caller({ place: place.place ?? '', leaseMs: LEASE_MS, calls });
    await caller.until('stopped', calls.length);
    await caller.kill();
    expect(caller.news.filter(({ type }) => type === 'ended')).toEqual([]);
  }, 120_000);
  afterAll(async () => {
    await caller.kill();
    await store.close();
    await place.stop();
  });

  /** The hook asks the outside world whether the effect is there. */
  function optionsOf(policy: Policy): RunOnceOptions<string> {
    const onCrash =
      policy === 'hook'
        ? ({ key }: { readonly key: string }) =>
            caller.effectsOf(key) > 0 ? { completed: 'found' } : ('rerun' as const)
        : policy;
    return { leaseMs: LEASE_MS, waitMs: WAIT_MS, onCrash };
  }

  it.each(ROWS)('$step, onCrash $policy: the next call does as it is told (C010, C026)', async (row) => {
    const { key, policy, effects, next } = row;
    expect(caller.effectsOf(key)).toBe(effects);
    const service = new IdempotencyService({ store });
    let runs = 0;
    const work = (): string => (runs++, RUNS);
    const call = (): Promise<unknown> =>
      service.runOnce(key, optionsOf(policy), work).catch((error: { code: string }) => error.code);
    expect(await call()).toBe(next[policy]);
    expect(await call()).toBe(next[policy]);
    expect(runs).toBe(next[policy] === RUNS ? 1 : 0);
  });
});
