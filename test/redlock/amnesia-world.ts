import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import type { Redis } from 'ioredis';
import type { LockStore } from 'nestjs-distributed-lock';

import { Adversary } from './adversary.js';
import { Dice } from './dice.js';
import { faultsOf, type Acquired } from './history.js';
import type { Setting } from './tokens-world.js';

const CLIENTS = 3;
const TTL_MS = 2_000;
const PATIENCE_MS = 1_000;
const WIPE_ODDS = 0.02;
const KEY = 'k';

export interface AmnesiaOutcome {
  readonly seed: number;
  readonly acquired: number;
  /** How often a server lost its data while the others all voted. */
  readonly wiped: number;
  readonly faults: readonly string[];
}

/** Runs for as long as that in real time, since servers are kept out in real time. */
export async function runAmnesia(setting: Setting, seed: number, runMs: number): Promise<AmnesiaOutcome> {
  const dice = new Dice(seed);
  const { servers, odds, rewrite } = setting;
  const adversary = new Adversary(servers, `${randomBytes(6).toString('hex')}:`, rewrite);
  const stores = Array.from({ length: CLIENTS }, () => adversary.connect());
  await stores[0]?.open?.();
  const history: Acquired[] = [];
  const endsAtMs = performance.now() + runMs;
  let working = CLIENTS;
  let wiped = 0;
  for (const store of stores)
    void contend(store, adversary, new Dice(dice.below(2 ** 31)), history, endsAtMs).finally(
      () => (working -= 1),
    );
  while (working > 0) {
    if (dice.lucky(WIPE_ODDS) && (await allVote(servers, adversary.keyPrefix))) {
      wiped += 1;
      await wipe(dice.oneOf(servers), adversary.keyPrefix);
    }
    await adversary.pump(dice, odds, KEY);
  }
  await adversary.end();
  return { seed, acquired: history.length, wiped, faults: faultsOf(history) };
}

async function contend(
  store: LockStore,
  adversary: Adversary,
  dice: Dice,
  history: Acquired[],
  endsAtMs: number,
): Promise<void> {
  while (performance.now() < endsAtMs) {
    const claim = { key: KEY, ownerId: `${dice.below(2 ** 31)}`, ttlMs: TTL_MS };
    const askedAt = adversary.steps;
    const answer = await store.tryAcquire(claim, PATIENCE_MS).catch(() => null);
    if (answer?.kind === 'granted') {
      history.push({ askedAt, toldAt: adversary.steps, token: answer.token });
      await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS).catch(() => null);
    }
    await sleep(dice.below(20));
  }
}

async function allVote(servers: readonly Redis[], prefix: string): Promise<boolean> {
  const voting = await Promise.all(servers.map((server) => server.hexists(`${prefix}server`, 'servers')));
  return voting.every((count) => count === 1);
}

async function wipe(server: Redis, prefix: string): Promise<void> {
  await server.del(`${prefix}server`, `${prefix}{${KEY}}:owner`, `${prefix}{${KEY}}:fence`);
}
