import { StallWatch } from './stall-watch.js';

describe('the stall watch', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  it('speaks when nothing was achieved for a while, and has no timer left once it was stopped', () => {
    const onStall = jest.fn();
    const watch = new StallWatch(100, onStall);
    jest.advanceTimersByTime(99);
    watch.progress();
    jest.advanceTimersByTime(99);
    expect(onStall).not.toHaveBeenCalled();
    jest.advanceTimersByTime(1);
    expect(onStall).toHaveBeenCalledTimes(1);
    watch.stop();
    watch.progress();
    expect(jest.getTimerCount()).toBe(0);
  });
});
