import { lockBench, settled, type LockBench } from '../../test/lock-bench.js';
import { lockKey } from './index.js';

const A = lockKey('account:<id>');
const B = lockKey('bill:<id>');

function nested({ locks }: LockBench, outer: string, inner: string): Promise<void> {
  const label = (key: string): { key: string; template: string } => ({
    key,
    template: key.replace(/:.*/, ':<id>'),
  });
  return locks.withLock(label(outer), () => locks.withLock(label(inner), () => undefined));
}

function inversions({ events }: LockBench): unknown[] {
  return events.filter(({ type }) => type === 'order-inversion');
}

describe('a nested key that sorts before a held one', () => {
  it('is reported once per pair of templates, however many keys', async () => {
    const bench = lockBench();
    for (let id = 0; id < 20; id++) await nested(bench, B({ id }), A({ id }));
    expect(inversions(bench)).toEqual([
      expect.objectContaining({ key: 'account:0', template: 'account:<id>', heldTemplate: 'bill:<id>' }),
    ]);
  });

  it('is reported also where both have one template', async () => {
    const bench = lockBench();
    await nested(bench, A({ id: 2 }), A({ id: 1 }));
    expect(inversions(bench)).toHaveLength(1);
  });

  it('is no news in order, when it joins, or after the outer hold has ended', async () => {
    const bench = lockBench();
    await nested(bench, A({ id: 1 }), B({ id: 1 }));
    await nested(bench, A({ id: 1 }), A({ id: 1 }));
    let late!: Promise<void>;
    await bench.locks.withLock('z', () => {
      late = settled().then(() => bench.locks.withLock('a', () => undefined));
    });
    await late;
    expect(inversions(bench)).toEqual([]);
  });

  it('is waited for no longer than waitMs by two callers that cross', async () => {
    const { clock, locks } = lockBench();
    const cross = (outer: string, inner: string): Promise<string> =>
      locks.withLock(outer, async () => {
        await settled();
        return locks.withLock(inner, { waitMs: 500 }, () => 'entered').catch((e: { code: string }) => e.code);
      });
    const both = Promise.all([cross('a', 'b'), cross('b', 'a')]);
    await settled();
    await clock.advance(2_000);
    expect(await both).toContain('LOCK_TIMEOUT');
    expect(locks.busy).toBe(false);
    expect(clock.armed).toBe(0);
  });

  it('is not remembered without end', async () => {
    const bench = lockBench();
    for (let i = 0; i < 150; i++) await nested(bench, `z${i}`, `a${i}`);
    expect(inversions(bench)).toHaveLength(100);
  });
});
