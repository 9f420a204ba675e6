import { randomBytes } from 'node:crypto';

import type { Redis } from 'ioredis';
import type { LockStore } from 'nestjs-distributed-lock';

import { Adversary, type Odds } from './adversary.js';
import { Dice } from './dice.js';
import { faultsOf, type Acquired } from './history.js';

const CLIENTS = 4;
const ATTEMPTS = 2;
/** Far longer than a run: keys end because the adversary ends them. */
const TTL_MS = 60_000;
const PATIENCE_MS = 4_000;
const KEY = 'k';

export interface Outcome {
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

/** Several owners on one key and a timeless adversary: exclusion is not to be expected, rising tokens are. */
export async function runTokens(setting: Setting, seed: number): Promise<Outcome> {
  const dice = new Dice(seed);
  const { servers, odds, rewrite } = setting;
  const adversary = new Adversary(servers, `${randomBytes(6).toString('hex')}:`, rewrite);
  const stores = Array.from({ length: CLIENTS }, () => adversary.connect());
  await stores[0]?.open?.();
  const history: Acquired[] = [];
  let working = CLIENTS;
  for (const store of stores)
    void contend(store, adversary, new Dice(dice.below(2 ** 31)), history).finally(() => (working -= 1));
  while (working > 0) await adversary.pump(dice, odds, KEY);
  await adversary.end();
  return { seed, acquired: history.length, faults: faultsOf(history) };
}

async function contend(
  store: LockStore,
  adversary: Adversary,
  dice: Dice,
  history: Acquired[],
): Promise<void> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const claim = { key: KEY, ownerId: `${dice.below(2 ** 31)}`, ttlMs: TTL_MS };
    const askedAt = adversary.steps;
    const answer = await store.tryAcquire(claim, PATIENCE_MS).catch(() => null); // unknown: the core would try anew
    if (answer?.kind === 'granted') {
      history.push({ askedAt, toldAt: adversary.steps, token: answer.token });
      await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS).catch(() => null);
    }
  }
}
