import { AsyncLocalStorage } from 'node:async_hooks';

import fc from 'fast-check';

import { lockBench, outcomeOf, settled, type LockBench } from '../../test/lock-bench.js';
import type { Lease } from './index.js';

/** A call on one of a few keys, and what its body does: calls one after another, side by side, or not awaited. */
interface Call {
  readonly key: string;
  readonly turns: number;
  readonly how: 'in-turn' | 'parallel' | 'unawaited';
  readonly fails: boolean;
  readonly inner: readonly Call[];
}

function callOfDepth(depth: number): fc.Arbitrary<Call> {
  return fc.record({
    key: fc.constantFrom('a', 'b', 'c'),
    turns: fc.integer({ min: 0, max: 3 }),
    how: fc.constantFrom('in-turn', 'parallel', 'unawaited'),
    fails: fc.boolean(),
    inner: depth === 0 ? fc.constant([]) : fc.array(callOfDepth(depth - 1), { maxLength: 3 }),
  });
}

interface Body {
  readonly key: string;
  readonly lease: Lease;
  readonly outer: Body | undefined;
}

/** Runs trees of calls and watches who is inside with whom. */
class Watch {
  readonly #chain = new AsyncLocalStorage<Body>();
  readonly #inside = new Set<Body>();
  readonly #underWay: Promise<unknown>[] = [];
  readonly faults: string[] = [];
  entered = 0;

  constructor(private readonly bench: LockBench) {}

  start(call: Call): Promise<unknown> {
    const ended = outcomeOf(this.#run(call));
    this.#underWay.push(ended);
    return ended;
  }

  async allEnded(): Promise<void> {
    for (let known = 0; known < this.#underWay.length;) {
      known = this.#underWay.length;
      await Promise.all(this.#underWay);
    }
  }

  #run({ key, turns, how, fails, inner }: Call): Promise<unknown> {
    return this.bench.locks.withLock(key, { ttlMs: 3_600_000, waitMs: 50 }, (lease) => {
      const body: Body = { key, lease, outer: this.#chain.getStore() };
      return this.#chain.run(body, async () => {
        await this.#enter(body);
        for (let i = 0; i < turns; i++) await settled();
        if (how === 'parallel') await Promise.all(inner.map((call) => this.start(call)));
        if (how === 'in-turn') for (const call of inner) await this.start(call);
        if (how === 'unawaited') for (const call of inner) void this.start(call);
        await this.#leave(body);
        if (fails) throw new Error('planned');
      });
    });
  }

  async #enter(body: Body): Promise<void> {
    for (const other of this.#inside) {
      if (other.key !== body.key || isOuterOf(other, body)) continue;
      this.faults.push(`two unrelated bodies are inside ${body.key}`);
    }
    this.#inside.add(body);
    this.entered += 1;
    await this.#check(body);
  }

  async #leave(body: Body): Promise<void> {
    await this.#check(body);
    this.#inside.delete(body);
  }

  /** The grant spans every body: the store has the key taken, and the lease is the one that the body was given. */
  async #check({ key, lease }: Body): Promise<void> {
    if (!(await this.bench.store.taken(key))) this.faults.push(`${key} is free in the store`);
    if (lease.state.kind !== 'acquired') this.faults.push(`the lease of ${key} is ${lease.state.kind}`);
  }
}

function isOuterOf(candidate: Body, body: Body): boolean {
  for (let outer = body.outer; outer; outer = outer.outer) if (outer === candidate) return true;
  return false;
}

describe('sections, whatever is nested, parallel or not awaited', () => {
  it('never lets two siblings in at once, spans all of them with one grant, and leaves nothing', async () => {
    const seed = Number(process.env.FC_SEED ?? Date.now() % 2 ** 31);
    let entered = 0;
    const property = fc.asyncProperty(
      fc.array(callOfDepth(3), { minLength: 1, maxLength: 4 }),
      async (roots) => {
        const bench = lockBench();
        const watch = new Watch(bench);
        for (const call of roots) void watch.start(call);
        let open = true;
        const ended = watch.allEnded().then(() => (open = false));
        while (open) await bench.clock.advance(10);
        await ended;
        await settled();
        entered += watch.entered;
        expect(watch.faults).toEqual([]);
        expect(bench.locks.busy).toBe(false);
        expect(bench.clock.armed).toBe(0);
        for (const key of ['a', 'b', 'c']) expect(await bench.store.taken(key)).toBe(false);
      },
    );
    await fc.assert(property, { seed, numRuns: Number(process.env.FC_RUNS ?? 40) }); // a failure prints the seed; FC_SEED repeats it, FC_RUNS makes it longer
    expect(entered).toBeGreaterThan(40);
  });
});
