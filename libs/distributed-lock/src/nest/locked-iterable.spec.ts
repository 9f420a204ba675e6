import { setTimeout as sleep } from 'node:timers/promises';

import { currentLease, LockService, type Lease, type LockStore } from '../core/index.js';
import { memoryStore } from '../stores/memory/index.js';
import { Locked } from './locked.decorator.js';
import { serveStandalone } from './locks-of-object.js';

class Feed {
  readonly closed: string[] = [];

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

/** As the store sees it. */
async function isTaken(): Promise<boolean> {
  const claim = { key: 'feed:1', ownerId: 'somebody else', ttlMs: 1_000 };
  const answer = await store.tryAcquire(claim, 100);
  if (answer.kind === 'granted') await store.release({ ...claim, keepForMs: 0 }, 100);
  return answer.kind === 'busy';
}

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
