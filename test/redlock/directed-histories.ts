import { randomBytes } from 'node:crypto';

import type { Redis } from 'ioredis';
import { redlockStore } from 'nestjs-distributed-lock/redis';

import { Adversary } from './adversary.js';
import { DirectedNetwork } from './directed-network.js';
import type { Acquired } from './history.js';
import { whileTimePasses } from './rounds.js';
import type { Setting } from './tokens-world.js';

const TTL_MS = 60_000;
const PATIENCE_MS = 4_000;
const KEY = 'k';
/** Where fences begin: some servers are behind the others. */
const [LOW, HIGH] = [100, 104];

type Rewrite = Setting['rewrite'];

/**
 * What two owners, x and then y, were told when commands came in one certain order. Nothing is left to chance: schemes
 * that are too weak for the order repeat a token each time.
 */
class DirectedHistory {
  readonly history: Acquired[] = [];
  readonly network: DirectedNetwork;
  readonly #adversary: Adversary;
  readonly #keyPrefix = `${randomBytes(6).toString('hex')}:`;
  #steps = 0;

  constructor(
    private readonly servers: readonly Redis[],
    rewrite: Rewrite,
  ) {
    this.#adversary = new Adversary(servers, this.#keyPrefix, rewrite);
    this.network = new DirectedNetwork(this.#adversary);
  }

  async begin(fences: readonly number[]): Promise<void> {
    await redlockStore({ clients: this.servers, keyPrefix: this.#keyPrefix }).open?.();
    await Promise.all(
      this.servers.map((server, i) => server.set(`${this.#keyPrefix}{${KEY}}:fence`, fences[i] as number)),
    );
  }

  /** Asks for the lock. Resolves when what came of it is in the history. */
  acquire(ownerId: string): Promise<void> {
    const askedAt = (this.#steps += 1);
    const claim = { key: KEY, ownerId, ttlMs: TTL_MS };
    return this.#adversary
      .connect()
      .tryAcquire(claim, PATIENCE_MS)
      .then(
        (answer) => {
          if (answer.kind !== 'granted') return;
          this.history.push({ askedAt, toldAt: (this.#steps += 1), token: answer.token });
        },
        () => undefined, // unknown: the core would try anew
      );
  }

  async grant(owner: string, servers: readonly number[]): Promise<void> {
    for (const server of servers) await this.network.deliver({ script: 'grant', server, owner });
    const others = this.servers.map((_, i) => i).filter((i) => !servers.includes(i));
    for (const server of others) await this.network.lose({ script: 'grant', server, owner });
  }

  async vanish(server: number): Promise<void> {
    await this.servers[server]?.del(`${this.#keyPrefix}{${KEY}}:owner`);
  }

  /** The server has lost its data. */
  async wipe(server: number): Promise<void> {
    const prefix = this.#keyPrefix;
    await this.servers[server]?.del(`${prefix}server`, `${prefix}{${KEY}}:owner`, `${prefix}{${KEY}}:fence`);
  }

  end(): Promise<void> {
    return whileTimePasses(this.#adversary.end(), 1);
  }
}

/**
 * Both owners are granted the key by servers that are behind, and each by another one that is not: their tokens are the
 * same, unless servers refuse what x writes back. That comes late, when they have given the key to y.
 */
export async function lateRaises(servers: readonly Redis[], rewrite?: Rewrite): Promise<Acquired[]> {
  const majority = (servers.length + 1) / 2;
  const behind = servers.map((_, i) => i).slice(1, majority);
  const run = new DirectedHistory(servers, rewrite);
  await run.begin(servers.map((_, i) => (behind.includes(i) ? LOW : HIGH)));
  const x = run.acquire('x');
  await run.grant('x', [...behind, 0]);
  for (const server of behind) await run.vanish(server);
  const y = run.acquire('y');
  await run.grant('y', [...behind, majority]);
  await run.network.deliverRaises('x', x);
  await run.network.deliverRaises('y', y);
  await run.end();
  return run.history;
}

/** The one server that both majorities share has lost its data in between. */
export async function forgottenToken(servers: readonly Redis[], rewrite?: Rewrite): Promise<Acquired[]> {
  const all = servers.map((_, i) => i);
  const majority = (servers.length + 1) / 2;
  const run = new DirectedHistory(servers, rewrite);
  await run.begin(servers.map(() => LOW));
  const x = run.acquire('x');
  await run.grant('x', all.slice(0, majority));
  await x;
  await run.wipe(0);
  const y = run.acquire('y');
  await run.grant('y', [0, ...all.slice(majority)]);
  await run.network.deliverRaises('y', y);
  await run.end();
  return run.history;
}
