import { gate, ManualClock, outcomeOf, settled } from '../../test/lock-bench.js';
import { LockTimeoutError } from '../core/index.js';
import { memoryIdempotencyStore } from '../stores/memory/index.js';
import {
  currentAttempt,
  fingerprintOf,
  IdempotencyService,
  type Attempt,
  type IdempotencyEvent,
  type IdempotencyServiceOptions,
  type IdempotencyStore,
} from './index.js';

const LEASE_MS = 30_000;

interface Bench {
  readonly clock: ManualClock;
  readonly store: IdempotencyStore;
  readonly calls: IdempotencyService;
  readonly events: IdempotencyEvent[];
  /** As another process has it, on the same store. */
  other(): IdempotencyService;
  typesOfEvents(): string[];
}

function bench(options: Partial<IdempotencyServiceOptions> = {}): Bench {
  const clock = new ManualClock();
  const store = memoryIdempotencyStore({ clock });
  const events: IdempotencyEvent[] = [];
  const service = (): IdempotencyService =>
    new IdempotencyService({ store, clock, onEvent: (event) => void events.push(event), ...options });
  return {
    clock,
    store,
    events,
    calls: service(),
    other: service,
    typesOfEvents: () => events.map(({ type }) => type),
  };
}

/** Begins a body and leaves it hanging, as a process that was killed would. */
async function crashed({ clock, other }: Bench, key = 'k'): Promise<void> {
  const begun = gate();
  void outcomeOf(other().runOnce(key, {}, () => (begun.open(), new Promise(() => undefined))));
  await begun.passed;
  clock.block(LEASE_MS); // no timer fires, so no heartbeat is sent
}

describe('runOnce', () => {
  it('runs the body once and gives everybody its answer, with its types', async () => {
    const { calls, other, typesOfEvents } = bench();
    let runs = 0;
    const work = (): Promise<object> =>
      Promise.resolve({ run: ++runs, at: new Date(5), total: 10n, none: undefined });
    const first = await calls.runOnce('k', {}, work);
    expect(await other().runOnce('k', {}, work)).toStrictEqual(first);
    expect(await calls.runOnce('k', {}, work)).not.toBe(first); // nobody shares an object with the store
    expect(runs).toBe(1);
    expect(typesOfEvents()).toEqual(['claimed', 'completed', 'replayed', 'replayed']);
  });

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['false', false],
    ['an empty text', ''],
    ['0', 0],
  ])('gives %s again as what it is (C122)', async (_, value) => {
    const { calls } = bench();
    let runs = 0;
    const work = (): unknown => (runs++, value);
    expect(await calls.runOnce('k', {}, work)).toBe(value);
    expect(await calls.runOnce('k', {}, work)).toBe(value);
    expect(runs).toBe(1);
  });

  it('lets a second caller wait for the first, and gives it the same answer (C059)', async () => {
    const { clock, calls, other } = bench();
    const [begun, finish] = [gate(), gate<string>()];
    const first = calls.runOnce('k', {}, () => (begun.open(), finish.passed));
    await begun.passed;
    const seconds = [calls, other(), other()].map((each) => each.runOnce('k', {}, () => 'again'));
    await clock.advance(400);
    finish.open('once');
    expect(await first).toBe('once');
    await clock.advance(1_000);
    expect(await Promise.all(seconds)).toEqual(['once', 'once', 'once']);
    expect(clock.armed).toBe(0);
  });

  it('tells a second caller when to come back, when it may not or will not wait longer', async () => {
    const { clock, calls, store } = bench();
    const [begun, finish] = [gate(), gate()];
    const first = calls.runOnce('k', {}, () => (begun.open(), finish.passed));
    await begun.passed;
    const atOnce = await outcomeOf(calls.runOnce('k', { waitMs: 0 }, () => 1));
    expect(atOnce).toMatchObject({
      code: 'IDEMPOTENCY_IN_PROGRESS',
      statusCode: 409,
      retryAfterMs: LEASE_MS,
    });
    const reads = jest.spyOn(store, 'read');
    const later = outcomeOf(calls.runOnce('k', { waitMs: 200 }, () => 1));
    const stop = new AbortController();
    const stopped = outcomeOf(calls.runOnce('k', { signal: stop.signal }, () => 1));
    await clock.advance(100);
    stop.abort();
    expect(await stopped).toMatchObject({ code: 'IDEMPOTENCY_IN_PROGRESS', outcome: 'not-started' });
    await clock.advance(100);
    expect(await later).toMatchObject({ code: 'IDEMPOTENCY_IN_PROGRESS', waitedMs: 200 });
    expect(reads.mock.calls.length).toBeLessThan(20);
    finish.open();
    await first;
    expect(clock.armed).toBe(0);
  });

  it('bounds its waiters: beyond a thousand, a caller is told at once', async () => {
    const { clock, calls } = bench();
    const [begun, finish] = [gate(), gate()];
    const first = calls.runOnce('k', {}, () => (begun.open(), finish.passed));
    await begun.passed;
    const waiting = Array.from({ length: 1_000 }, () => outcomeOf(calls.runOnce('k', {}, () => 1)));
    await settled();
    expect(await outcomeOf(calls.runOnce('k', {}, () => 1))).toMatchObject({
      code: 'IDEMPOTENCY_IN_PROGRESS',
    });
    finish.open();
    await first;
    await clock.advance(1_000);
    await Promise.all(waiting);
  });

  it('refuses a key that comes with another request, also while the first is at work', async () => {
    const { calls } = bench();
    const [begun, finish] = [gate(), gate<string>()];
    const fingerprints = [fingerprintOf({ amount: 1 }), fingerprintOf({ amount: 2 })] as const;
    const first = calls.runOnce('k', { fingerprint: fingerprints[0] }, () => (begun.open(), finish.passed));
    await begun.passed;
    const refused = (): Promise<unknown> =>
      outcomeOf(calls.runOnce('k', { fingerprint: fingerprints[1] }, () => 'b'));
    expect(await refused()).toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED', statusCode: 422 });
    finish.open('a');
    await first;
    expect(await refused()).toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED' });
    expect(await calls.runOnce('k', { fingerprint: fingerprints[0] }, () => 'b')).toBe('a');
  });

  it("never gives one caller another caller's answer", async () => {
    const { calls } = bench();
    const as = (caller: string): Promise<string> =>
      calls.runOnce({ key: 'k', operation: 'pay', caller }, {}, () => caller);
    expect([await as('a'), await as('b'), await as('a')]).toEqual(['a', 'b', 'a']);
  });

  it('refuses at once to wait for itself, and lets other keys nest (all with their own attempt)', async () => {
    const { calls } = bench();
    const keys: unknown[] = [];
    const inner = await calls
      .runOnce('a', {}, () =>
        calls
          .runOnce('b', {}, async () => {
            keys.push(currentAttempt()?.key);
            return outcomeOf(calls.runOnce('a', {}, () => 1));
          })
          .finally(() => keys.push(currentAttempt()?.key)),
      )
      .catch((error: unknown) => error);
    expect(inner).toMatchObject({ code: 'IDEMPOTENCY_REENTRANT' });
    expect([...keys, currentAttempt()]).toEqual(['b', 'a', undefined]);
  });

  it('keeps an answer for retentionMs from completion on, and then begins anew with a higher fence', async () => {
    const { clock, calls, events } = bench();
    const finish = gate();
    const first = calls.runOnce('k', { retentionMs: 1_000 }, () => finish.passed);
    await clock.advance(60_000);
    finish.open();
    await first;
    clock.block(999);
    await calls.runOnce('k', {}, () => 'new');
    clock.block(1);
    expect(await calls.runOnce('k', {}, () => 'new')).toBe('new');
    const fences = events.flatMap((event) => (event.type === 'claimed' ? [event.fence] : []));
    expect(fences).toHaveLength(2);
    expect(fences[1]).toBeGreaterThan(fences[0] as number);
  });

  it('leaves nothing of an attempt in the context once it has ended', async () => {
    const { calls } = bench();
    let late: (() => Attempt | undefined) | undefined;
    await calls.runOnce('k', {}, () => {
      const { resolve, promise } = later();
      void promise.then(() => (late = currentAttempt));
      resolve();
    });
    let seen: unknown = 'not yet';
    await calls.runOnce('k2', {}, async () => void setImmediate(() => (seen = currentAttempt())));
    await settled();
    await settled();
    expect(late?.()).toBeUndefined();
    expect(seen).toBeUndefined();
  });

  it.each<[object, RegExp]>([
    [{ leaseMs: 0 }, /leaseMs is 0/],
    [{ leaseMs: '30s' }, /leaseMs is '30s'/],
    [{ leaseMs: Infinity }, /leaseMs is Infinity/],
    [{ retentionMs: NaN }, /retentionMs is NaN/],
    [{ retentionMs: null }, /retentionMs is null/],
    [{ unknownRetentionMs: -1 }, /unknownRetentionMs is -1/],
    [{ waitMs: -1 }, /waitMs is -1/],
    [{ maxAttempts: 0 }, /maxAttempts is 0/],
    [{ maxResultBytes: 1.5 }, /maxResultBytes is 1.5/],
    [{ onCrash: 'retry' }, /onCrash is retry/],
  ])('refuses %j by name, before anything runs (C042)', async (options, message) => {
    const { calls, events } = bench();
    const refusal = await outcomeOf(calls.runOnce('k', options, () => 1));
    expect(refusal).toMatchObject({ code: 'LOCK_CONFIG_INVALID', message: expect.stringMatching(message) });
    if (!('onCrash' in options)) expect(() => bench({ defaults: options })).toThrow(message);
    expect(events).toEqual([]);
  });
});

function later(): { promise: Promise<void>; resolve: () => void } {
  let resolve!: () => void;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

describe('a body that fails', () => {
  const boom = new Error('gateway down');

  it('frees the key and keeps counting its attempts; the next one may even send something else (C088)', async () => {
    const { calls } = bench();
    const attempts: number[] = [];
    const failing = ({ attempt }: Attempt): never => {
      attempts.push(attempt);
      throw boom;
    };
    for (const fingerprint of ['1:a', '1:b']) {
      expect(await outcomeOf(calls.runOnce('k', { fingerprint }, failing))).toBe(boom);
    }
    expect(await calls.inspect('k')).toMatchObject({ state: 'absent', attempt: 2 });
    expect(await calls.runOnce('k', { fingerprint: '1:c' }, ({ attempt }) => attempt)).toBe(3);
    expect(attempts).toEqual([1, 2]);
  });

  it('counts no attempt when what was around it failed or skipped before the body began', async () => {
    const { calls, typesOfEvents } = bench();
    const busy = new LockTimeoutError('busy', { retryAfterMs: 1 });
    const around = (): Promise<never> => Promise.reject(busy);
    expect(await outcomeOf(calls.runOnce('k', { around }, () => 1))).toBe(busy);
    expect(await calls.inspect('k')).toBeNull();
    expect(
      await calls.runOnce<number | string>('k', { around: () => Promise.resolve('skipped') }, () => 1),
    ).toBe('skipped');
    expect(await calls.inspect('k')).toBeNull();
    expect(typesOfEvents()).not.toContain('completed');
    expect(await calls.runOnce('k', { around: (body) => body() }, ({ attempt }) => attempt)).toBe(1);
  });

  it.each(['LEASE_LOST', 'LEASE_UNCERTAIN', 'FENCED_OUT'] as const)(
    'with %s leaves the record lapsed at once, so that onCrash decides and nothing is silently run twice',
    async (code) => {
      const { calls } = bench();
      const { LeaseLostError, LeaseUncertainError, FencedOutError } = await import('../core/index.js');
      const errors = {
        LEASE_LOST: new LeaseLostError('m', { reason: 'expired' }),
        LEASE_UNCERTAIN: new LeaseUncertainError('m', {}),
        FENCED_OUT: new FencedOutError('m', {}),
      };
      const failing = (): never => {
        throw errors[code];
      };
      expect(await outcomeOf(calls.runOnce('k', {}, failing))).toBe(errors[code]);
      expect(await calls.inspect('k')).toMatchObject({ state: 'lapsed', attempt: 1 });
      expect(await outcomeOf(calls.runOnce('k', { onCrash: 'reject' }, () => 1))).toMatchObject({
        code: 'IDEMPOTENCY_OUTCOME_UNKNOWN',
        statusCode: 503,
      });
    },
  );

  it('is an answer when the application says that it is final, and comes back as that error', async () => {
    const { calls } = bench();
    class Declined extends Error {
      constructor(readonly reason: string) {
        super(`declined: ${reason}`);
      }
    }
    const finalErrors = {
      describe: (error: unknown) => (error instanceof Declined ? { reason: error.reason } : undefined),
      revive: (description: unknown) => new Declined((description as Declined).reason),
    };
    let runs = 0;
    const declined = (): never => {
      throw new Declined(`no money ${++runs}`);
    };
    await outcomeOf(calls.runOnce('k', { finalErrors }, declined));
    const again = await outcomeOf(calls.runOnce('k', { finalErrors }, declined));
    expect(again).toBeInstanceOf(Declined);
    expect(again).toMatchObject({ reason: 'no money 1' });
    expect(await outcomeOf(calls.runOnce('k', {}, declined))).toMatchObject({
      code: 'IDEMPOTENCY_RESULT_OMITTED',
    });
    expect(await outcomeOf(calls.runOnce('other', { finalErrors }, () => Promise.reject(boom)))).toBe(boom);
    expect(await calls.inspect('other')).toMatchObject({ state: 'absent' });
  });
});

describe('after a crash', () => {
  it('the next caller waits for the lease, takes over with a higher fence, and runs the body again (C010)', async () => {
    const test = bench();
    const { clock, calls, events } = test;
    await crashed(test);
    clock.block(-1); // not over yet
    const next = calls.runOnce('k', {}, ({ attempt, takenOver, fence }) => ({ attempt, takenOver, fence }));
    await clock.advance(1_000);
    const first = events[0];
    expect(await next).toMatchObject({ attempt: 2, takenOver: true });
    expect((await next).fence).toBeGreaterThan(first?.type === 'claimed' ? first.fence : Infinity);
  });

  it('with onCrash reject it is never run again until an operator has said how it ended (C026)', async () => {
    const test = bench();
    const { calls, other } = test;
    await crashed(test);
    const reject = (): Promise<unknown> =>
      outcomeOf(calls.runOnce<unknown>('k', { onCrash: 'reject' }, () => 'again'));
    for (let i = 0; i < 2; i += 1)
      expect(await reject()).toMatchObject({ code: 'IDEMPOTENCY_OUTCOME_UNKNOWN', outcome: 'unknown' });
    expect(await outcomeOf(other().runOnce('k', {}, () => 'again'))).toMatchObject({
      code: 'IDEMPOTENCY_OUTCOME_UNKNOWN',
    });
    expect(await calls.resolve('k', { paid: 5n })).toBe('resolved');
    expect(await reject()).toEqual({ paid: 5n });
    expect(await calls.resolve('k', 'otherwise')).toBe('refused');
  });

  it('the outcome stays unknown for longer than answers are kept', async () => {
    const test = bench();
    const { clock, calls } = test;
    await crashed(test);
    clock.block(29 * 24 * 60 * 60 * 1_000);
    expect(await outcomeOf(calls.runOnce('k', { onCrash: 'reject' }, () => 1))).toMatchObject({
      code: 'IDEMPOTENCY_OUTCOME_UNKNOWN',
    });
  });

  it('a hook finds out what happened: completed, to be run, or nobody knows', async () => {
    for (const verdict of [{ completed: 'found' }, 'rerun', 'reject'] as const) {
      const test = bench();
      await crashed(test);
      const seen: unknown[] = [];
      const onCrash = (attempt: Attempt): typeof verdict => {
        seen.push(attempt.idempotencyKey, currentAttempt()?.attempt);
        return verdict;
      };
      const answer = await outcomeOf(test.calls.runOnce<string>('k', { onCrash }, () => 'run'));
      expect(seen).toEqual(['k', 2]);
      if (verdict === 'reject') expect(answer).toMatchObject({ code: 'IDEMPOTENCY_OUTCOME_UNKNOWN' });
      else expect(answer).toBe(verdict === 'rerun' ? 'run' : 'found');
      const state = verdict === 'reject' ? 'abandoned' : 'done';
      expect(await test.calls.inspect('k')).toMatchObject({ state });
    }
  });

  it('a hook that fails has found out nothing: the next caller asks again, and no attempt is counted', async () => {
    const test = bench();
    await crashed(test);
    const onCrash = jest
      .fn()
      .mockRejectedValueOnce(new Error('no network'))
      .mockResolvedValue({ completed: 'found' });
    expect(await outcomeOf(test.calls.runOnce('k', { onCrash }, () => 'run'))).toMatchObject({
      message: 'no network',
    });
    expect(await test.calls.inspect('k')).toMatchObject({ state: 'lapsed', attempt: 1 });
    expect(await test.calls.runOnce('k', { onCrash }, () => 'run')).toBe('found');
  });

  it('a call that crashes every time is given up after maxAttempts', async () => {
    const test = bench();
    for (let attempt = 1; attempt <= 5; attempt += 1) await crashed(test);
    let runs = 0;
    const next = await outcomeOf(test.calls.runOnce('k', {}, () => ++runs));
    expect(next).toMatchObject({ code: 'IDEMPOTENCY_OUTCOME_UNKNOWN' });
    expect(runs).toBe(0);
    expect(await test.calls.inspect('k')).toMatchObject({ state: 'abandoned', attempt: 5 });
    expect(await test.calls.forget('k')).toBe('forgotten');
    expect(await test.calls.runOnce('k', {}, ({ attempt }) => attempt)).toBe(1);
  });
});

describe('the lease of a record', () => {
  it('is renewed while the body runs, however long that takes, by one heartbeat at a time', async () => {
    const { clock, calls, other, store } = bench();
    const finish = gate<string>();
    const renew = jest.spyOn(store, 'renew');
    const first = calls.runOnce('k', {}, () => finish.passed);
    await clock.advance(300_000);
    expect(renew.mock.calls.length).toBeGreaterThanOrEqual(29);
    expect(renew.mock.calls.length).toBeLessThanOrEqual(31);
    expect(await outcomeOf(other().runOnce('k', { waitMs: 0 }, () => 1))).toMatchObject({
      code: 'IDEMPOTENCY_IN_PROGRESS',
    });
    finish.open('done');
    expect(await first).toBe('done');
    expect(clock.armed).toBe(0);
  });

  it('costs no heartbeat when the body is quick', async () => {
    const { calls, store } = bench();
    const renew = jest.spyOn(store, 'renew');
    await calls.runOnce('k', {}, () => 1);
    expect(renew).not.toHaveBeenCalled();
  });

  it('is lost at the deadline when no heartbeat is answered; the body is told, and may still complete if nobody took over', async () => {
    const { clock, calls, store, typesOfEvents } = bench();
    const finish = gate<string>();
    jest.spyOn(store, 'renew').mockRejectedValue(new Error('no network'));
    let attempt!: Attempt;
    const first = calls.runOnce('k', {}, (mine) => ((attempt = mine), finish.passed));
    await clock.advance(29_690);
    expect(attempt.signal.aborted).toBe(false);
    expect(() => attempt.assertOwned()).not.toThrow();
    await clock.advance(10);
    expect(attempt.signal.aborted).toBe(true);
    expect(() => attempt.idempotencyKey).toThrow(/lost while its attempt 1 was at work \(expired\)/);
    expect(typesOfEvents().filter((type) => type === 'lease-lost')).toHaveLength(1);
    clock.block(LEASE_MS);
    finish.open('done');
    expect(await first).toBe('done');
    expect(await calls.runOnce('k', {}, () => 'again')).toBe('done');
  });

  it('tells a stale body at its first look, before any timer has fired', async () => {
    const { clock, calls } = bench();
    const told = await calls.runOnce('k', {}, (attempt) => {
      clock.block(LEASE_MS);
      return outcomeOf(Promise.resolve().then(() => attempt.idempotencyKeyFor('refund')));
    });
    expect(told).toMatchObject({ code: 'IDEMPOTENCY_LEASE_LOST', reason: 'expired' });
  });

  it('once taken over, belongs to the successor: the late first caller gets the answer of the second (C060)', async () => {
    const { clock, calls, other } = bench();
    const [begun, finish] = [gate(), gate<string>()];
    const first = calls.runOnce('k', {}, () => (begun.open(), finish.passed));
    await begun.passed;
    clock.block(LEASE_MS);
    expect(await other().runOnce('k', {}, () => 'second')).toBe('second');
    finish.open('first');
    expect(await first).toBe('second');
    expect(await calls.runOnce('k', {}, () => 'third')).toBe('second');
  });

  it('once taken over by one that still runs, the late first caller learns that its outcome is unknown, with its value', async () => {
    const { clock, calls, other } = bench();
    const [begun, finish, hold] = [gate(), gate<string>(), gate<string>()];
    const first = outcomeOf(calls.runOnce('k', {}, () => (begun.open(), finish.passed)));
    await begun.passed;
    clock.block(LEASE_MS);
    const second = other().runOnce('k', {}, () => hold.passed);
    await settled();
    finish.open('first');
    expect(await first).toMatchObject({
      code: 'IDEMPOTENCY_LEASE_LOST',
      value: 'first',
      outcome: 'unknown',
      statusCode: 503,
    });
    hold.open('second');
    expect(await second).toBe('second');
  });

  it('once taken over, does not let a late failure free the record of the successor', async () => {
    const { clock, calls, other } = bench();
    const [begun, fail, hold] = [gate(), gate(), gate<string>()];
    const boom = new Error('boom');
    const first = outcomeOf(
      calls.runOnce('k', {}, () => (begun.open(), fail.passed.then(() => Promise.reject(boom)))),
    );
    await begun.passed;
    clock.block(LEASE_MS);
    const second = other().runOnce('k', {}, () => hold.passed);
    await settled();
    fail.open();
    expect(await first).toMatchObject({ code: 'IDEMPOTENCY_LEASE_LOST', cause: boom });
    expect(await calls.inspect('k')).toMatchObject({ state: 'running', attempt: 2 });
    hold.open('second');
    expect(await second).toBe('second');
  });
});

describe('a store that does not answer', () => {
  const away = new Error('ECONNRESET');

  it('at the claim: nothing runs, and the claim is freed in case it was carried out', async () => {
    const { calls, store } = bench();
    const claim = store.claim.bind(store);
    jest.spyOn(store, 'claim').mockImplementationOnce(async (...args) => {
      await claim(...args);
      throw away;
    });
    let runs = 0;
    const work = (): number => ++runs;
    const refusal = await outcomeOf(calls.runOnce('k', {}, work));
    expect(refusal).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      statusCode: 503,
      outcome: 'not-started',
      cause: away,
    });
    await settled();
    expect(await calls.runOnce('k', { waitMs: 0 }, work)).toBe(1);
  });

  it('at the claim, for ever: the call ends in time whatever the driver does', async () => {
    const { clock, calls, store } = bench();
    jest.spyOn(store, 'claim').mockReturnValue(new Promise(() => undefined));
    const refusal = outcomeOf(calls.runOnce('k', {}, () => 1));
    await clock.advance(5_000);
    expect(await refusal).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    expect(clock.armed).toBe(0);
  });

  it('with anything but an exact word is not believed', async () => {
    for (const answer of [
      null,
      undefined,
      true,
      {},
      { kind: 'claimed' },
      { kind: 'claimed', fence: '1', attempt: 1 },
      { kind: 'ok' },
    ]) {
      const { calls, store } = bench();
      jest.spyOn(store, 'claim').mockResolvedValue(answer as never);
      let runs = 0;
      expect(await outcomeOf(calls.runOnce('k', {}, () => ++runs))).toMatchObject({
        code: 'STORE_UNAVAILABLE',
      });
      expect(runs).toBe(0);
    }
  });

  it('at the completion: it is sent again, and an answer that was lost counts', async () => {
    const { clock, calls, store } = bench();
    const settle = store.settle.bind(store);
    jest
      .spyOn(store, 'settle')
      .mockRejectedValueOnce(away)
      .mockImplementationOnce(async (...args) => {
        await settle(...args);
        throw away;
      });
    const first = calls.runOnce('k', {}, () => 'done');
    await clock.advance(1_000);
    expect(await first).toBe('done');
    expect(await calls.runOnce('k', {}, () => 'again')).toBe('done');
  });

  it('at the completion, for ever: the caller still gets its value, since the effect is there', async () => {
    const { clock, calls, store, typesOfEvents } = bench();
    jest.spyOn(store, 'settle').mockRejectedValue(away);
    const first = calls.runOnce('k', {}, () => 'done');
    await clock.advance(40_000);
    expect(await first).toBe('done');
    expect(typesOfEvents()).toContain('store-unanswered');
    expect(typesOfEvents()).not.toContain('completed');
    expect(clock.armed).toBe(0);
  });
});

describe('a result that cannot be kept', () => {
  it.each<[string, object, () => unknown]>([
    ['too large', { maxResultBytes: 10 }, () => 'x'.repeat(10)],
    ['a function', {}, () => () => 1],
  ])('(%s) never fails its caller, and is never run again for the others', async (_, options, work) => {
    const { calls, typesOfEvents } = bench();
    const value = await calls.runOnce('k', options, work);
    expect(typeof value).toBe(typeof work());
    expect(typesOfEvents()).toContain('result-omitted');
    let runs = 0;
    const next = await outcomeOf(calls.runOnce('k', options, () => ++runs));
    expect(next).toMatchObject({ code: 'IDEMPOTENCY_RESULT_OMITTED', outcome: 'committed', statusCode: 500 });
    expect(runs).toBe(0);
    expect(await calls.inspect('k')).toMatchObject({ state: 'done', outcome: 'omitted', resultBytes: 0 });
  });

  it('in this version, of these classes or with this key is an omitted one, not a crash', async () => {
    const { calls, store } = bench();
    await calls.runOnce('k', {}, () => 'v');
    const claim = store.claim.bind(store);
    jest.spyOn(store, 'claim').mockImplementation(async (...args) => {
      const answer = await claim(...args);
      return answer.kind === 'done'
        ? { ...answer, result: { ...answer.result, codec: 'typed-json/2' } }
        : answer;
    });
    expect(await outcomeOf(calls.runOnce('k', {}, () => 'w'))).toMatchObject({
      code: 'IDEMPOTENCY_RESULT_OMITTED',
    });
  });

  it('is stored unreadable where the application says so, bound to its record', async () => {
    const seal = (text: string, id: string): string => Buffer.from(`${id} ${text}`).toString('base64');
    const open = (text: string, id: string): string =>
      Buffer.from(text, 'base64')
        .toString()
        .slice(id.length + 1);
    const { calls, store } = bench({ encryption: { encrypt: seal, decrypt: open } });
    await calls.runOnce('k', {}, () => ({ iban: 'DE00' }));
    const settled = jest.spyOn(store, 'settle');
    await calls.runOnce('k2', {}, () => ({ iban: 'DE00' }));
    expect(JSON.stringify(settled.mock.calls)).not.toContain('DE00');
    expect(await calls.runOnce('k2', {}, () => null)).toEqual({ iban: 'DE00' });
    const failing = bench({
      encryption: { encrypt: () => Promise.reject(new Error('no key')), decrypt: open },
    });
    expect(await failing.calls.runOnce('k', {}, () => 'secret')).toBe('secret');
    expect(await outcomeOf(failing.calls.runOnce('k', {}, () => 'w'))).toMatchObject({
      code: 'IDEMPOTENCY_RESULT_OMITTED',
    });
  });
});

describe('an operator', () => {
  it('sees a record without what is in it, and cannot forget one that is at work', async () => {
    const { clock, calls } = bench();
    expect(await calls.inspect('k')).toBeNull();
    const [begun, finish] = [gate(), gate<string>()];
    const first = calls.runOnce('k', {}, () => (begun.open(), finish.passed));
    await begun.passed;
    clock.block(1_000);
    expect(await calls.inspect('k')).toMatchObject({
      state: 'running',
      attempt: 1,
      leaseRemainingMs: 29_000,
      label: 'k',
    });
    expect(await calls.forget('k')).toBe('running');
    expect(await calls.resolve('k', 1)).toBe('refused');
    finish.open('secret');
    await first;
    const view = await calls.inspect('k');
    expect(view).toMatchObject({ state: 'done', outcome: 'value', resultBytes: 8, expiresInMs: 86_400_000 });
    expect(JSON.stringify(view)).not.toContain('secret');
    expect([await calls.forget('k'), await calls.forget('k')]).toEqual(['forgotten', 'absent']);
    expect(await calls.runOnce('k', {}, () => 'new')).toBe('new');
  });

  it('is told when the store does not answer', async () => {
    const { calls, store } = bench();
    jest.spyOn(store, 'forget').mockRejectedValue(new Error('away'));
    expect(await outcomeOf(calls.forget('k'))).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      outcome: 'unknown',
    });
  });
});

describe('a shutdown', () => {
  it('begins nothing new, waits for what runs, and leaves alone what does not end in time', async () => {
    const { clock, calls } = bench();
    const [begun, finish] = [gate(), gate()];
    const first = calls.runOnce('k', {}, () => (begun.open(), finish.passed));
    await begun.passed;
    let closed = false;
    const closing = calls.close({ graceMs: 5_000 }).then(() => (closed = true));
    expect(await outcomeOf(calls.runOnce('k2', {}, () => 1))).toMatchObject({
      code: 'SHUTTING_DOWN',
      outcome: 'not-started',
    });
    await clock.advance(4_000);
    expect(closed).toBe(false);
    await clock.advance(1_000);
    await closing;
    expect(await calls.inspect('k')).toMatchObject({ state: 'running' });
    finish.open();
    await first;
    expect(clock.armed).toBe(0);
  });

  it('is over at once when nothing runs', async () => {
    const { calls, clock } = bench();
    await calls.close();
    expect(clock.armed).toBe(0);
  });
});
