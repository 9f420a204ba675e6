import { setTimeout as sleep } from 'node:timers/promises';

import { Logger } from '@nestjs/common';
import { filter, firstValueFrom, map, merge, mergeMap, of, share, take, toArray } from 'rxjs';

import { LockEventHub, type LockEvent } from '../core/index.js';
import { LockEvents, type ApplicationEvent } from './lock-events.js';

const event: LockEvent = { type: 'released', key: 'a', template: 'a', store: 'default', token: 1, heldMs: 2 };

describe('LockEvents', () => {
  const uncaught = jest.fn();
  let logged: jest.SpyInstance;
  let hub: LockEventHub;
  let events: LockEvents;

  beforeEach(() => {
    hub = new LockEventHub();
    events = new LockEvents(hub);
    logged = jest.spyOn(Logger.prototype, 'error').mockImplementation(() => undefined);
    process.on('uncaughtException', uncaught);
  });

  afterEach(async () => {
    await sleep(2); // RxJS throws from a timer
    process.off('uncaughtException', uncaught);
    expect(uncaught).not.toHaveBeenCalled();
    logged.mockRestore();
  });

  it('tells every subscriber what happens, until the end', async () => {
    const all = firstValueFrom(events.pipe(toArray()));
    const unsubscribed: ApplicationEvent[] = [];
    const subscription = events.subscribe((one) => unsubscribed.push(one));
    hub.emit(event);
    subscription.unsubscribe();
    hub.emit(event);
    events.end();
    hub.emit(event);
    await expect(all).resolves.toEqual([event, event]);
    expect(unsubscribed).toEqual([event]);
  });

  it.each<[string, (fail: () => never) => void]>([
    ['a function', (fail) => events.subscribe(fail)],
    ['an observer', (fail) => events.subscribe({ next: fail })],
    ['its error handler', (fail) => events.pipe(map(fail)).subscribe({ error: fail })],
    ['its end', (fail) => events.subscribe({ complete: fail })],
    ['behind a pipe', (fail) => events.pipe(filter(() => true)).subscribe(fail)],
    ['inside a pipe', (fail) => events.pipe(map(fail), take(1)).subscribe()],
    ['behind an inner stream', (fail) => events.pipe(mergeMap((one) => of(one))).subscribe(fail)],
  ])('is not harmed by a subscriber that throws from %s, nor are the others', (_, subscribe) => {
    const seen: ApplicationEvent[] = [];
    subscribe(() => {
      throw new RangeError('a broken subscriber');
    });
    events.subscribe((one) => seen.push(one));
    hub.emit(event);
    hub.emit(event);
    events.end();
    expect(seen).toEqual([event, event]);
    expect(logged).toHaveBeenCalledWith(expect.any(String), new RangeError('a broken subscriber'));
  });

  it('works with operators that share and with streams that merge', async () => {
    const shared = events.pipe(share());
    const merged = firstValueFrom(merge(shared, shared).pipe(take(2), toArray()));
    hub.emit(event);
    await expect(merged).resolves.toEqual([event, event]);
  });
});
