import { systemClock } from './index.js';

describe('the system clock', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  it('waits as long as it is told, also beyond the longest delay of Node', () => {
    const run = jest.fn();
    const delayMs = 2 ** 31 * 2 + 5;
    systemClock.schedule(delayMs, run);
    jest.advanceTimersByTime(delayMs - 1);
    expect(run).not.toHaveBeenCalled();
    jest.advanceTimersByTime(1);
    expect(run).toHaveBeenCalledTimes(1);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('forgets a timer that was cancelled, in its first stretch or a later one', () => {
    const run = jest.fn();
    const first = systemClock.schedule(2 ** 32, run);
    const later = systemClock.schedule(2 ** 32, run);
    first.cancel();
    jest.advanceTimersByTime(2 ** 31 + 1);
    later.cancel();
    later.cancel();
    expect(jest.getTimerCount()).toBe(0);
    jest.advanceTimersByTime(2 ** 33);
    expect(run).not.toHaveBeenCalled();
  });
});
