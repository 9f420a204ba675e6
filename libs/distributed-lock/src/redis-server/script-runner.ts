import { messageOf, type RedisClient, type RedisLink } from './redis-client.js';
import type { RedisScript } from './redis-script.js';

/** Runs scripts by their digest; the text travels only while the server does not know it. */
export class ScriptRunner {
  /** Scripts that the server has seen from us; it forgets them when it restarts. */
  readonly #loaded = new Set<RedisScript>();

  constructor(private readonly link: RedisLink) {}

  run(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    timeoutMs: number,
  ): Promise<unknown> {
    return this.link.send(timeoutMs, (client) =>
      this.#evaluate(client, script, keys.length, [...keys, ...args]),
    );
  }

  async #evaluate(client: RedisClient, script: RedisScript, keys: number, input: string[]): Promise<unknown> {
    if (this.#loaded.has(script)) {
      try {
        return await client.evalsha(script.sha1, keys, ...input);
      } catch (error) {
        if (!messageOf(error).startsWith('NOSCRIPT')) throw error;
      }
    }
    const reply = await client.eval(script.text, keys, ...input);
    this.#loaded.add(script);
    return reply;
  }
}
