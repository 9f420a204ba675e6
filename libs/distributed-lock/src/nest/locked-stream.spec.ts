import { setTimeout as sleep } from 'node:timers/promises';

import {
  concat,
  defer,
  firstValueFrom,
  interval,
  lastValueFrom,
  NEVER,
  Observable,
  of,
  take,
  tap,
  toArray,
} from 'rxjs';

import { currentLease, LockService, type Lease, type LockStore } from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';
import { Locked } from './locked.decorator.js';
import { serveStandalone } from './locks-of-object.js';

class Feed {
  subscribed = 0;
  readonly closed: string[] = [];

  @Locked('feed:<0>', { waitMs: 0 })
  watch(_id: string, source: Observable<number>): Observable<number> {
    this.subscribed += 1;
    return source;
  }

  @Locked('feed:<0>', { waitMs: 0, returns: 'observable' })
  inferred(_id: string) {
    return defer(() => of(currentLease()?.key));
  }

  @Locked('feed:<0>', { onBusy: 'skip' })
  watchUnlessBusy(_id: string): Observable<number> {
    return of(1);
  }

  @Locked('feed:<id>', { waitMs: 0 })
  async *pages(id: string, count: number): AsyncGenerator<string | undefined, string> {
    try {
      for (let page = 0; page < count; page++) {
        await sleep(1);
        yield currentLease()?.key;
      }
      return `${id} read`;
    } finally {
      this.closed.push(id);
    }
  }

  @Locked('feed:<id>', { onBusy: 'skip' })
  async *pagesUnlessBusy(id: string): AsyncGenerator<string> {
    yield await Promise.resolve(id);
  }

  @Locked('feed:<id>', { waitMs: 0, returns: 'async-iterable' })
  iterable(id: string): AsyncIterable<string | undefined> {
    return this.#inner(id);
  }

  async *#inner(_id: string): AsyncGenerator<string | undefined> {
    yield await Promise.resolve(currentLease()?.key);
  }
}

let store: LockStore;
let locks: LockService;
let feed: Feed;

beforeEach(() => {
  store = memoryStore();
  locks = new LockService({ stores: { default: store } });
  serveStandalone(locks);
  feed = new Feed();
});

afterEach(async () => {
  serveStandalone(undefined);
  await locks.close(0);
});

/** Until nothing is held, given back or waited for. */
async function idle(): Promise<void> {
  while (locks.busy) await sleep(1);
}

/** As the store sees it. */
async function isTaken(): Promise<boolean> {
  const claim = { key: 'feed:1', ownerId: 'somebody else', ttlMs: 1_000 };
  const answer = await store.tryAcquire(claim, 100);
  if (answer.kind === 'granted') await store.release({ ...claim, keepForMs: 0 }, 100);
  return answer.kind === 'busy';
}

describe('@Locked on a method that returns an Observable', () => {
  it('C127: takes nothing before somebody subscribes', async () => {
    feed.watch('1', of(1));
    await sleep(2);
    expect(feed.subscribed).toBe(0);
    expect(locks.busy).toBe(false);
  });

  it('C127: holds from subscribe to complete, and completes after the release', async () => {
    const heldDuring: boolean[] = [];
    const source = new Observable<number>((subscriber) => {
      void isTaken().then((busy) => {
        heldDuring.push(busy);
        subscriber.next(1);
        subscriber.complete();
      });
    });
    await expect(lastValueFrom(feed.watch('1', source))).resolves.toBe(1);
    expect(heldDuring).toEqual([true]);
    expect(locks.busy).toBe(false);
  });

  it('C127: gives the lock back on error, and passes the error on', async () => {
    const failing = concat(
      of(1),
      defer(() => {
        throw new RangeError('broken');
      }),
    );
    await expect(lastValueFrom(feed.watch('1', failing))).rejects.toThrow(new RangeError('broken'));
    expect(locks.busy).toBe(false);
  });

  it('C127: gives the lock back on unsubscribe, also in the middle of a synchronous source', async () => {
    await expect(firstValueFrom(feed.watch('1', concat(of(1, 2), NEVER)))).resolves.toBe(1);
    await idle();
    const subscription = feed.watch('1', NEVER).subscribe();
    await sleep(2);
    expect(await isTaken()).toBe(true);
    subscription.unsubscribe();
    await idle();
    expect(await isTaken()).toBe(false);
  });

  it('C127: a subscription that ends while it waits leaves nothing behind and runs nothing', async () => {
    const held = await locks.acquire('feed:1');
    class Patient {
      ran = false;
      @Locked('feed:<0>')
      watch(_id: string): Observable<number> {
        this.ran = true;
        return of(1);
      }
    }
    const patient = new Patient();
    const subscription = patient.watch('1').subscribe();
    await sleep(2);
    subscription.unsubscribe();
    await held.release();
    await idle();
    expect(patient.ran).toBe(false);
  });

  it('gives each subscription a lock of its own', async () => {
    const stream = feed.watch('1', interval(1).pipe(take(2)));
    const first = lastValueFrom(stream);
    await sleep(0);
    await expect(lastValueFrom(stream)).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await first;
    await expect(lastValueFrom(stream)).resolves.toBe(1);
  });

  it("has the context inside the source's subscribe", async () => {
    await expect(lastValueFrom(feed.inferred('1'))).resolves.toBe('feed:1');
    const source = defer(() => of(currentLease()?.token ?? 0));
    await expect(lastValueFrom(feed.watch('1', source))).resolves.toBeGreaterThan(0);
  });

  it('fails as a stream, and not by throwing, when the key is missing', async () => {
    const stream = feed.watch('', of(1));
    await expect(lastValueFrom(stream)).rejects.toMatchObject({ code: 'LOCK_KEY_INVALID' });
    expect(feed.subscribed).toBe(0);
  });

  it("ends empty on a busy key with onBusy: 'skip'", async () => {
    const held = await locks.acquire('feed:1');
    await expect(lastValueFrom(feed.watchUnlessBusy('1').pipe(toArray()))).resolves.toEqual([]);
    await held.release();
    await expect(lastValueFrom(feed.watchUnlessBusy('1').pipe(toArray()))).resolves.toEqual([1]);
  });

  it('ends with LEASE_LOST as soon as the lease is lost, and unsubscribes from the source', async () => {
    let unsubscribed = false;
    const source = new Observable<number>((subscriber) => {
      const lease = currentLease();
      setTimeout(() => lease?.lose('taken-over'), 1);
      subscriber.next(1);
      return () => (unsubscribed = true);
    });
    const seen: number[] = [];
    const ended = lastValueFrom(feed.watch('1', source).pipe(tap((value) => seen.push(value))));
    await expect(ended).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'taken-over' });
    expect({ seen, unsubscribed }).toEqual({ seen: [1], unsubscribed: true });
    expect(locks.busy).toBe(false);
  });
});

describe('@Locked on a method that returns an async iterable', () => {
  it('C127: holds from the first next() to the end, with the context in each step', async () => {
    const seen: (string | undefined)[] = [];
    const pages = feed.pages('1', 3);
    expect(locks.busy).toBe(false);
    for await (const key of pages) {
      seen.push(key);
      expect(await isTaken()).toBe(true);
      expect(currentLease()).toBeUndefined();
    }
    expect(seen).toEqual(['feed:1', 'feed:1', 'feed:1']);
    expect(locks.busy).toBe(false);
  });

  it('C127: gives the lock back when the consumer breaks off, and lets the method clean up', async () => {
    for await (const key of feed.pages('1', 100)) if (key) break;
    expect(feed.closed).toEqual(['1']);
    expect(locks.busy).toBe(false);
  });

  it('passes on what the consumer throws in, and the value that the method returns', async () => {
    const pages = feed.pages('1', 5);
    await pages.next();
    await expect(pages.throw(new RangeError('enough'))).rejects.toThrow(new RangeError('enough'));
    expect(feed.closed).toEqual(['1']);
    expect(locks.busy).toBe(false);
    await expect(feed.pages('2', 0).next()).resolves.toEqual({ done: true, value: '2 read' });
  });

  it('takes nothing when it is returned from before the first step', async () => {
    const pages = feed.pages('1', 3);
    await pages.return('nothing');
    await expect(pages.next()).resolves.toEqual({ done: true, value: undefined });
    expect(feed.closed).toEqual([]);
    expect(locks.busy).toBe(false);
  });

  it('fails at the first step when the key is missing or busy', async () => {
    await expect(feed.pages('', 1).next()).rejects.toMatchObject({ code: 'LOCK_KEY_INVALID' });
    const held = await locks.acquire('feed:1');
    await expect(feed.pages('1', 1).next()).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await expect(feed.pagesUnlessBusy('1').next()).resolves.toEqual({ done: true, value: undefined });
    await held.release();
  });

  it("takes another iterable than a generator with returns: 'async-iterable'", async () => {
    const seen: unknown[] = [];
    for await (const key of feed.iterable('1')) seen.push(key);
    expect(seen).toEqual(['feed:1']);
  });

  it('ends with LEASE_LOST at the next step once the lease is lost, and closes the method', async () => {
    let lease: Lease | undefined;
    class Losing {
      @Locked('lost:<0>')
      async *pages(_id: string): AsyncGenerator<number> {
        lease = currentLease();
        try {
          yield await Promise.resolve(1);
          yield 2;
        } finally {
          feed.closed.push('lost');
        }
      }
    }
    const losing = new Losing().pages('1');
    await losing.next();
    lease?.lose('taken-over');
    await expect(losing.next()).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'taken-over' });
    expect(feed.closed).toEqual(['lost']);
    expect(locks.busy).toBe(false);
  });
});
