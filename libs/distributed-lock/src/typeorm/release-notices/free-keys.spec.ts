import { FreeKeys } from './free-keys.js';

describe('who waits for a key', () => {
  it('may, when woken, wait anew at once, and is not woken again for that', () => {
    const free = new FreeKeys();
    let wakes = 0;
    const wait = (): void => {
      const watch = free.watch('a', () => {
        if ((wakes += 1) > 5) return;
        watch.stop();
        wait();
      });
    };
    wait();
    free.hear(() => true);
    expect(wakes).toBe(1);
    free.ring('a');
    expect(wakes).toBe(2);
  });

  it('leaves nothing behind', () => {
    const free = new FreeKeys();
    const watches = Array.from({ length: 100 }, (_, i) => free.watch(`${i % 10}`, () => undefined));
    expect(free.awaited).toBe(true);
    for (const watch of [...watches, ...watches]) watch.stop();
    expect(free.awaited).toBe(false);
  });
});
