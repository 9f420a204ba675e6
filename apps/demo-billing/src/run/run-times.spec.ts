import { leaseTimes } from '../storage/lease-times.js';
import { runTimes } from './run-times.js';

describe('the times of a run', () => {
  it.each([
    ['redis', 20, { leaseMs: 1_200, lapsedAfterMs: 1_200 }, 3_600],
    ['etcd', 2_000, { leaseMs: 2_000, lapsedAfterMs: 3_500 }, 5_900],
    ['zookeeper', 4_000, { leaseMs: 4_000, lapsedAfterMs: 6_000 }, 8_400],
    ['consul', 10_000, { leaseMs: 10_000, lapsedAfterMs: 20_000 }, 22_400],
  ] as const)('follow from the shortest lease of %s, which is %d ms', (kind, shortestMs, lease, pauseMs) => {
    const times = leaseTimes(kind, 1_200, shortestMs);
    expect(times).toMatchObject(lease);
    expect(runTimes(times).pauseMs).toBe(pauseMs);
  });

  it('leave everybody the time to see a lock run out', () => {
    const times = leaseTimes('consul', 1_200, 10_000);
    const { pauseMs, visibilityMs, hungAfterMs, stalledAfterMs } = runTimes(times);
    expect(times.waitMs).toBeGreaterThan(times.lapsedAfterMs);
    expect(pauseMs).toBeGreaterThan(times.lapsedAfterMs);
    expect(visibilityMs).toBeGreaterThan(times.leaseMs);
    expect(hungAfterMs).toBeGreaterThan(pauseMs + times.waitMs);
    expect(stalledAfterMs).toBeGreaterThan(hungAfterMs);
  });
});
