import { setImmediate as turn } from 'node:timers/promises';

import type { Redis } from 'ioredis';
import { redlockStore, type RedisClient } from 'nestjs-distributed-lock/redis';
import type { LockStore } from 'nestjs-distributed-lock';

import type { Dice } from './dice.js';
import { digestOf, nameOf, ScriptTexts, type ScriptName } from './script-texts.js';

/** One command on its way to a server, or to be delivered once more. */
export interface Command {
  readonly server: number;
  readonly script: ScriptName;
  /** Whose grant it is about; nothing for commands about servers and about several grants. */
  readonly owner: string | undefined;
  /** Carries it out on the real server, and does not tell the sender. */
  execute(): Promise<unknown>;
  /** Undefined for a command that is delivered a second time. */
  readonly sender?: { tell(reply: unknown): void; fail(error: unknown): void };
}

/** How likely each fault is at each step. */
export interface Odds {
  readonly requestLost: number;
  readonly replyLost: number;
  readonly sentAgain: number;
  readonly keyVanishes: number;
}

/**
 * The network between stores and real servers, which delivers in any order, late, twice or never. Nothing passes by itself:
 * {@link pump} carries one command at a time.
 */
export class Adversary {
  readonly pending: Command[] = [];
  /** How many commands have been looked at: the time of a history. */
  steps = 0;
  readonly #texts = new ScriptTexts();
  readonly #stores: LockStore[] = [];
  readonly #passing = new Set<Promise<unknown>>();

  constructor(
    private readonly servers: readonly Redis[],
    readonly keyPrefix: string,
    private readonly rewrite: (script: string, server: number) => string = (script) => script,
    /** Scripts that pass at once, by nobody's leave. */
    private readonly undisturbed: readonly ScriptName[] = ['look', 'admit'],
  ) {}

  /** A store of a process of its own. */
  connect(): LockStore {
    const clients = this.servers.map((_, i) => this.#client(i));
    const store = redlockStore({ clients, keyPrefix: this.keyPrefix });
    this.#stores.push(store);
    return store;
  }

  /** One step: loses, delivers or repeats one command, and perhaps ends a grant somewhere. */
  async pump(dice: Dice, odds: Odds, key: string): Promise<void> {
    this.steps += 1;
    if (dice.lucky(odds.keyVanishes)) await dice.oneOf(this.servers).del(this.ownerOf(key));
    const [command] = this.pending.splice(dice.below(this.pending.length), 1);
    if (command) await this.#deliver(command, dice, odds);
    await Promise.allSettled(this.#passing);
    await turn();
  }

  /** Nothing arrives any more. */
  async end(): Promise<void> {
    while (this.pending.length > 0) {
      for (const { sender } of this.pending.splice(0)) sender?.fail(new Error('the end'));
      await turn();
    }
    await Promise.all(this.#stores.map((store) => store.close()));
  }

  ownerOf(key: string): string {
    return `${this.keyPrefix}{${key}}:owner`;
  }

  async #deliver(command: Command, dice: Dice, odds: Odds): Promise<void> {
    const { sender } = command;
    if (sender && dice.lucky(odds.requestLost)) return sender.fail(new Error('lost on its way'));
    if (sender && dice.lucky(odds.sentAgain)) this.pending.push({ ...command, sender: undefined });
    const reply = await command.execute();
    if (dice.lucky(odds.replyLost)) sender?.fail(new Error('its answer was lost'));
    else sender?.tell(reply);
  }

  #client(server: number): RedisClient {
    return {
      eval: (text, keys, ...input) => {
        this.#texts.keep(text);
        return this.#send(server, text, keys, input);
      },
      evalsha: async (sha1, keys, ...input) => this.#send(server, this.#texts.of(sha1), keys, input),
      info: () => (this.servers[server] as Redis).info(),
    };
  }

  #send(server: number, text: string, keys: number, input: string[]): Promise<unknown> {
    const script = nameOf(text);
    const rewritten = this.rewrite(text, server);
    const execute = (): Promise<unknown> => evaluate(this.servers[server] as Redis, rewritten, keys, input);
    if (this.undisturbed.includes(script)) return this.#pass(execute());
    const owner = script === 'grant' || script === 'raise' ? input[keys + 1] : undefined;
    return new Promise((tell, fail) =>
      this.pending.push({ server, script, owner, execute, sender: { tell, fail } }),
    );
  }
  async #pass(executed: Promise<unknown>): Promise<unknown> {
    this.#passing.add(executed);
    return executed.finally(() => this.#passing.delete(executed));
  }
}

/** Texts are much longer than what is said with them: they are sent once. */
async function evaluate(server: Redis, text: string, keys: number, input: string[]): Promise<unknown> {
  try {
    return await server.evalsha(digestOf(text), keys, ...input);
  } catch (error) {
    if (!(error as Error).message.includes('NOSCRIPT')) throw error;
    return server.eval(text, keys, ...input);
  }
}
