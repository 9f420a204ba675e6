import { messageOf, type RedisClient, type RedisLink } from './redis-client.js';
import type { RedisScript } from './redis-script.js';

/** A script's answer, and how many replicas have confirmed what it wrote. */
export interface ConfirmedReply {
  readonly reply: unknown;
  readonly replicas: number;
}

/** While it waits for replicas, the connection does nothing else. */
const LONGEST_WAIT_MS = 500;

/** Runs scripts by their digest; the text travels only while the server does not know it. */
export class ScriptRunner {
  /** Scripts that the server has seen from us; it forgets them when it restarts, and each node has its own. */
  readonly #loaded = new Set<RedisScript>();

  constructor(private readonly link: RedisLink) {}

  run(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    timeoutMs: number,
  ): Promise<unknown> {
    return this.link.send(timeoutMs, (client) =>
      this.#evaluate(script, (command, text) => client[command](text, keys.length, ...keys, ...args)),
    );
  }

  /** As {@link run}, and waits for at most half of the time until `minReplicas` have confirmed. */
  runConfirmed(
    script: RedisScript,
    keys: readonly string[],
    args: readonly string[],
    timeoutMs: number,
    minReplicas: number,
  ): Promise<ConfirmedReply> {
    const waitMs = Math.max(1, Math.min(Math.floor(timeoutMs / 2), LONGEST_WAIT_MS)); // 0 would be for ever
    return this.link.send(timeoutMs, (client) =>
      this.#evaluate(script, (command, text) =>
        confirmed(client, [command, text, keys.length, ...keys, ...args], [minReplicas, waitMs]),
      ),
    );
  }

  async #evaluate<T>(
    script: RedisScript,
    send: (command: 'evalsha' | 'eval', text: string) => Promise<T>,
  ): Promise<T> {
    if (this.#loaded.has(script)) {
      try {
        return await send('evalsha', script.sha1);
      } catch (error) {
        if (!messageOf(error).startsWith('NOSCRIPT')) throw error;
      }
    }
    const reply = await send('eval', script.text);
    this.#loaded.add(script);
    return reply;
  }
}

/** WAIT knows only the writes of its own connection, so both go in one pipeline; inside a script it is refused. */
async function confirmed(
  client: RedisClient,
  command: unknown[],
  wait: [minReplicas: number, waitMs: number],
): Promise<ConfirmedReply> {
  const answers = await client.pipeline?.([command, ['wait', ...wait]]).exec();
  const [scripted, waited] = answers ?? [];
  if (!scripted || !waited) throw new Error('Redis did not answer both commands of a pipeline.');
  if (scripted[0]) throw scripted[0];
  if (waited[0]) throw waited[0];
  return { reply: scripted[1], replicas: Number(waited[1]) };
}
