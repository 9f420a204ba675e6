import { LockEventHub, type LockEvent } from './index.js';

const EVENT: LockEvent = { type: 'skipped', key: 'k', template: 'k', store: 'default', retryAfterMs: null };

describe('the event hub', () => {
  it('tells every listener, whatever the others do', async () => {
    const hub = new LockEventHub();
    const seen: LockEvent[] = [];
    const broken: (() => unknown)[] = [
      () => {
        throw new Error('broken');
      },
      () => Promise.reject(new Error('broken')),
      () => ({ then: (_: unknown, reject: (error: Error) => void) => reject(new Error('broken')) }),
      () => ({
        get then() {
          throw new Error('broken');
        },
      }),
    ];
    for (const listener of broken) hub.subscribe(listener);
    hub.subscribe((event) => seen.push(event));
    hub.emit(EVENT);
    await new Promise(setImmediate);
    expect(seen).toEqual([EVENT]);
  });

  it('forgets a listener that unsubscribed, also from within', () => {
    const hub = new LockEventHub();
    const seen: string[] = [];
    const leave = hub.subscribe(() => {
      seen.push('once');
      leave();
    });
    hub.emit(EVENT);
    hub.emit(EVENT);
    leave();
    expect(seen).toEqual(['once']);
  });

  it('tells a listener that subscribes from within only of the next event', () => {
    const hub = new LockEventHub();
    let told = 0;
    hub.subscribe(() => {
      if (told < 1_000) hub.subscribe(() => void (told += 1));
    });
    hub.emit(EVENT);
    expect(told).toBe(0);
    hub.emit(EVENT);
    expect(told).toBe(1);
  });
});
