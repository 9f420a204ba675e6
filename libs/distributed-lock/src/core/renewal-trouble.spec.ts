import { gate, lockBench, outcomeOf, settled } from '../../test/lock-bench.js';
import { after, refusal, silence } from '../../test/scripted-store.js';
import type { Clock } from './index.js';

const KEY = 'invoice:1';
const TTL = { ttlMs: 3_000 };

const troubles: readonly (readonly [what: string, renew: (clock: Clock) => Promise<never>])[] = [
  ['is rejected', refusal],
  ['is never answered', silence],
  ['is rejected after it was given up', (clock) => after(clock, 1_500, refusal)],
  ['is rejected after the lease has ended', (clock) => after(clock, 20_000, refusal)],
];

describe('C067: a renewal that', () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);

  beforeEach(() => void process.on('unhandledRejection', note));
  afterEach(() => {
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
  });

  it.each(troubles)(
    '%s each time is told to the awaited call at the deadline, and to nobody else',
    async (_, renew) => {
      const { clock, store, locks } = lockBench();
      store.onRenew = () => renew(clock);
      const pause = gate();
      const aborted = jest.fn();
      const call = outcomeOf(
        locks.withLock(KEY, TTL, (lease) => {
          lease.signal.addEventListener('abort', aborted);
          return pause.passed;
        }),
      );
      await clock.advance(2_967);
      expect(aborted).not.toHaveBeenCalled();
      await clock.advance(1);
      expect(aborted).toHaveBeenCalledTimes(1);
      pause.open();
      expect(await call).toMatchObject({ code: 'LEASE_LOST', reason: 'expired' });
      await clock.advance(60_000);
      await settled();
      expect(clock.armed).toBe(0);
    },
  );

  it.each(troubles)('%s the first time costs nothing', async (_, renew) => {
    const { clock, store, locks } = lockBench();
    store.onRenew = (_claims, forward) => (store.renewals.length === 1 ? renew(clock) : forward());
    const lease = await locks.acquire(KEY, TTL);
    await clock.advance(60_000);
    lease.assertHeld();
    expect(await lease.release()).toBe('released');
    await settled();
  });
});
