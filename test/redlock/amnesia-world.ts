import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

import type { Redis } from 'ioredis';
import type { LockStore } from 'nestjs-distributed-lock';

import { Adversary } from './adversary.js';
import { Dice } from './dice.js';
import { faultsOf, type Acquired } from './history.js';
import { runRounds, type World } from './rounds.js';
import type { Setting } from './tokens-world.js';

const CLIENTS = 3;
const TTL_MS = 2_000;
const PATIENCE_MS = 1_000;
const WIPE_ODDS = 0.02;
const ROUND_MS = 8;
const KEY = 'k';
/**
 * Each run goes on until it has seen so many of both, and else the test is over its limit: from the second loss on, a server
 * has come back before.
 */
const FEWEST_ACQUIRED = 6;
const FEWEST_WIPED = 2;

interface AmnesiaOutcome {
  readonly seed: number;
  readonly acquired: number;
  /** How often a server lost its data while the others all voted. */
  readonly wiped: number;
  readonly faults: readonly string[];
}

/** Runs for at least as long as that on the clock by which servers are kept out, all runs beside each other. */
export async function runAmnesia(
  setting: Setting,
  seeds: readonly number[],
  runMs: number,
): Promise<AmnesiaOutcome[]> {
  const endsAtMs = performance.now() + runMs;
  const worlds = seeds.map((seed) => new AmnesiaWorld(setting, seed, endsAtMs));
  await Promise.all(worlds.map((world) => world.open()));
  await runRounds(worlds, ROUND_MS);
  return worlds.map(({ outcome }) => outcome);
}

class AmnesiaWorld implements World {
  readonly #dice: Dice;
  readonly #adversary: Adversary;
  readonly #history: Acquired[] = [];
  #contending = CLIENTS;
  #wiped = 0;

  constructor(
    private readonly setting: Setting,
    private readonly seed: number,
    private readonly endsAtMs: number,
  ) {
    const { servers, rewrite } = setting;
    this.#dice = new Dice(seed);
    this.#adversary = new Adversary(servers, `${randomBytes(6).toString('hex')}:`, rewrite);
  }

  get working(): boolean {
    return this.#contending > 0;
  }

  get outcome(): AmnesiaOutcome {
    const history = this.#history;
    return {
      seed: this.seed,
      acquired: history.length,
      wiped: this.#wiped,
      faults: faultsOf(history),
    };
  }

  async open(): Promise<void> {
    const stores = Array.from({ length: CLIENTS }, () => this.#adversary.connect());
    await stores[0]?.open?.();
    for (const store of stores) void this.#contend(store, new Dice(this.#dice.below(2 ** 31)));
  }

  async step(): Promise<void> {
    if (this.#dice.lucky(WIPE_ODDS) && (await this.#allVote())) {
      this.#wiped += 1;
      await this.#wipe(this.#dice.oneOf(this.setting.servers));
    }
    await this.#adversary.pump(this.#dice, this.setting.odds, KEY);
  }

  end(): Promise<void> {
    return this.#adversary.end();
  }

  async #contend(store: LockStore, dice: Dice): Promise<void> {
    while (performance.now() < this.endsAtMs || !this.#hasSeenEnough) {
      const claim = { key: KEY, ownerId: `${dice.below(2 ** 31)}`, ttlMs: TTL_MS };
      const askedAt = this.#adversary.steps;
      const answer = await store.tryAcquire(claim, PATIENCE_MS).catch(() => null);
      if (answer?.kind === 'granted') {
        this.#history.push({ askedAt, toldAt: this.#adversary.steps, token: answer.token });
        await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS).catch(() => null);
      }
      await pause(dice.below(20));
    }
    this.#contending -= 1;
  }

  get #hasSeenEnough(): boolean {
    return this.#history.length >= FEWEST_ACQUIRED && this.#wiped >= FEWEST_WIPED;
  }

  async #allVote(): Promise<boolean> {
    const self = `${this.#adversary.keyPrefix}server`;
    const voting = await Promise.all(this.setting.servers.map((server) => server.hexists(self, 'servers')));
    return voting.every((count) => count === 1);
  }

  async #wipe(server: Redis): Promise<void> {
    const prefix = this.#adversary.keyPrefix;
    await server.del(`${prefix}server`, `${prefix}{${KEY}}:owner`, `${prefix}{${KEY}}:fence`);
  }
}
