import { setTimeout as sleep } from 'node:timers/promises';

import {
  concat,
  defer,
  firstValueFrom,
  lastValueFrom,
  NEVER,
  Observable,
  of,
  Subject,
  tap,
  toArray,
} from 'rxjs';

import { currentLease, LockService, type LockStore } from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';
import { Locked } from './locked.decorator.js';
import { serveStandalone } from './locks-of-object.js';

class Feed {
  subscribed = 0;

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
    while (!(await isTaken())) await sleep(1);
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
    const source = new Subject<number>();
    const stream = feed.watch('1', source);
    const first = lastValueFrom(stream);
    await expect(lastValueFrom(stream)).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    source.next(1);
    source.complete();
    await expect(first).resolves.toBe(1);
    await expect(lastValueFrom(feed.watch('1', of(2)))).resolves.toBe(2);
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
