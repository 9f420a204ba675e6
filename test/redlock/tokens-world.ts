import { randomBytes } from 'node:crypto';

import type { Redis } from 'ioredis';
import type { LockStore } from 'nestjs-distributed-lock';

import { Adversary, type Odds } from './adversary.js';
import { Dice } from './dice.js';
import { faultsOf, type Acquired } from './history.js';
import { runRounds, type World } from './rounds.js';

const CLIENTS = 4;
const ATTEMPTS = 2;
/** Far longer than a run: keys end because the adversary ends them. */
const TTL_MS = 60_000;
const PATIENCE_MS = 4_000;
const ROUND_MS = 1;
const KEY = 'k';

interface Outcome {
  readonly seed: number;
  readonly acquired: number;
  readonly faults: readonly string[];
}

/** What a run is made of. */
export interface Setting {
  readonly servers: readonly Redis[];
  readonly odds: Odds;
  readonly rewrite?: (script: string, server: number) => string;
}

/**
 * Several owners on one key and a timeless adversary: exclusion is not to be expected, rising tokens are. All runs are made
 * beside each other, each on keys of its own.
 */
export async function runTokens(setting: Setting, seeds: readonly number[]): Promise<Outcome[]> {
  const worlds = seeds.map((seed) => new TokensWorld(setting, seed));
  await Promise.all(worlds.map((world) => world.open()));
  await runRounds(worlds, ROUND_MS);
  return worlds.map(({ outcome }) => outcome);
}

class TokensWorld implements World {
  readonly #dice: Dice;
  readonly #adversary: Adversary;
  readonly #history: Acquired[] = [];
  #contending = CLIENTS;

  constructor(
    private readonly setting: Setting,
    private readonly seed: number,
  ) {
    const { servers, rewrite } = setting;
    this.#dice = new Dice(seed);
    this.#adversary = new Adversary(servers, `${randomBytes(6).toString('hex')}:`, rewrite);
  }

  get working(): boolean {
    return this.#contending > 0;
  }

  get outcome(): Outcome {
    return { seed: this.seed, acquired: this.#history.length, faults: faultsOf(this.#history) };
  }

  async open(): Promise<void> {
    const stores = Array.from({ length: CLIENTS }, () => this.#adversary.connect());
    await stores[0]?.open?.();
    for (const store of stores) void this.#contend(store, new Dice(this.#dice.below(2 ** 31)));
  }

  step(): Promise<void> {
    return this.#adversary.pump(this.#dice, this.setting.odds, KEY);
  }

  end(): Promise<void> {
    return this.#adversary.end();
  }

  async #contend(store: LockStore, dice: Dice): Promise<void> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const claim = { key: KEY, ownerId: `${dice.below(2 ** 31)}`, ttlMs: TTL_MS };
      const askedAt = this.#adversary.steps;
      const answer = await store.tryAcquire(claim, PATIENCE_MS).catch(() => null); // unknown: the core would try anew
      if (answer?.kind !== 'granted') continue;
      this.#history.push({ askedAt, toldAt: this.#adversary.steps, token: answer.token });
      await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS).catch(() => null);
    }
    this.#contending -= 1;
  }
}
