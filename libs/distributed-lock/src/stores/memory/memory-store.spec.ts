import type { Clock } from '../../core/index.js';
import { memoryStore } from './index.js';

const clock = { monotonic: 0, wall: 1_700_000_000_000 };
const settable: Clock = {
  monotonicMs: () => clock.monotonic,
  wallMs: () => clock.wall,
  schedule: () => ({ cancel: () => undefined }),
};

describe('memoryStore', () => {
  it('takes tokens from the wall clock in microseconds, so that they outlive a restart beside a durable fence', async () => {
    const before = memoryStore({ clock: settable });
    const old = await before.tryAcquire({ key: 'k', ownerId: 'a', ttlMs: 1_000 }, 0);
    expect(old).toEqual({ kind: 'granted', token: clock.wall * 1_000 });
    clock.wall += 1;
    const restarted = memoryStore({ clock: settable });
    const next = await restarted.tryAcquire({ key: 'k', ownerId: 'b', ttlMs: 1_000 }, 0);
    expect(next).toEqual({ kind: 'granted', token: clock.wall * 1_000 });
  });

  it('never repeats or lowers a token when the wall clock stands still or is set back', async () => {
    const store = memoryStore({ clock: settable });
    const tokens: number[] = [];
    for (const backMs of [0, 0, 3_600_000, 0]) {
      clock.wall -= backMs;
      const claim = { key: 'k', ownerId: `owner ${tokens.length}`, ttlMs: 1_000 };
      const answer = await store.tryAcquire(claim, 0);
      tokens.push(answer.kind === 'granted' ? answer.token : 0);
      await store.release({ ...claim, keepForMs: 0 }, 0);
    }
    const [first = 0] = tokens;
    expect(tokens).toEqual([first, first + 1, first + 2, first + 3]);
  });

  it('judges leases by the monotonic clock: a step of the wall clock neither ends nor lengthens one (C084)', async () => {
    const store = memoryStore({ clock: settable });
    const claim = { key: 'k', ownerId: 'a', ttlMs: 1_000 };
    await store.tryAcquire(claim, 0);
    clock.wall += 3_600_000;
    expect(await store.renew([claim], 0)).toEqual(['renewed']);
    clock.wall -= 7_200_000;
    clock.monotonic += 1_000;
    expect(await store.renew([claim], 0)).toEqual(['lost']);
  });

  it('ends no lease when one of two applications that share it closes', async () => {
    const store = memoryStore();
    const claim = { key: 'k', ownerId: 'a', ttlMs: 60_000 };
    await store.tryAcquire(claim, 0);
    await store.close();
    expect(await store.renew([claim], 0)).toEqual(['renewed']);
  });

  it('forgets keys whose minimum hold is over, so that 20 000 of them do not pile up (C131)', async () => {
    const store = memoryStore({ clock: settable });
    const bytesBefore = await heapUsed();
    for (let i = 0; i < 20_000; i += 1) {
      const claim = { key: `invoice:${i}:${'x'.repeat(500)}`, ownerId: 'a', ttlMs: 1_000 };
      await store.tryAcquire(claim, 0);
      await store.release({ ...claim, keepForMs: 10 }, 0);
      clock.monotonic += 1;
    }
    expect((await heapUsed()) - bytesBefore).toBeLessThan(4_000_000);
    expect(store.kind).toBe('memory'); // still in use, so not collected itself
  });
});

async function heapUsed(): Promise<number> {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed;
}
