import { ManualClock, outcomeOf } from '../../../test/lock-bench.js';
import { IdempotencyService } from '../../idempotency/index.js';
import { memoryIdempotencyStore } from './index.js';

describe('the idempotency store in memory', () => {
  it('is bounded: it refuses new calls rather than forget an answer, until something has expired', async () => {
    const clock = new ManualClock();
    const store = memoryIdempotencyStore({ clock, maxRecords: 2 });
    const calls = new IdempotencyService({ store, clock, defaults: { retentionMs: 1_000 } });
    await calls.runOnce('a', {}, () => 'a');
    clock.block(10);
    await calls.runOnce('b', {}, () => 'b');
    const refusal = await outcomeOf(calls.runOnce('c', {}, () => 'c'));
    expect(refusal).toMatchObject({ code: 'STORE_UNAVAILABLE', outcome: 'not-started' });
    expect(refusal).toMatchObject({ message: expect.stringMatching(/full.*raise maxRecords/) });
    expect(await calls.runOnce('a', {}, () => 'again')).toBe('a');
    clock.block(990);
    expect(await calls.runOnce('c', {}, () => 'c')).toBe('c');
    expect(await calls.runOnce('b', {}, () => 'again')).toBe('b');
  });

  it('is bounded in what it keeps of results', async () => {
    const clock = new ManualClock();
    const store = memoryIdempotencyStore({ clock, maxStoredCharacters: 100 });
    const calls = new IdempotencyService({ store, clock });
    await calls.runOnce('a', {}, () => 'x'.repeat(120));
    expect(await outcomeOf(calls.runOnce('b', {}, () => 'b'))).toMatchObject({ code: 'STORE_UNAVAILABLE' });
    await calls.forget('a');
    expect(await calls.runOnce('b', {}, () => 'b')).toBe('b');
  });
});
