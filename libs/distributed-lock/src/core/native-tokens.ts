import { LockConfigInvalidError } from './errors.js';
import type { Grant } from './lock-store.js';

/**
 * Tokens of a store whose server counts by itself: its number plus an offset, and never one that falls within the life of
 * this process.
 */
export class NativeTokens {
  #newest = 0;

  /** `counter` names the number, e.g. "revision of etcd". */
  constructor(
    private readonly counter: string,
    private readonly tokenOffset: number,
  ) {}

  /** The highest number that made a token. To be read before the command is sent whose answer has to exceed it. */
  get newest(): number {
    return this.#newest;
  }

  /** @throws the number has fallen, or leaves no safe integer */
  grant(counted: number, newestBefore: number): Grant {
    const token = counted + this.tokenOffset;
    if (!Number.isSafeInteger(token) || !(counted > 0)) {
      throw new Error(
        `The ${this.counter} ${counted} plus tokenOffset is no safe integer; lower tokenOffset.`,
      );
    }
    if (counted <= newestBefore) {
      throw new Error(
        `The ${this.counter} is ${counted} after ${newestBefore}: the server was restored or has lost its data, and ` +
          `tokens would fall. Set tokenOffset above ${newestBefore + this.tokenOffset} and start again.`,
      );
    }
    this.#newest = Math.max(this.#newest, counted);
    return { kind: 'granted', token };
  }
}

/** @throws {LockConfigInvalidError} unless it is a safe integer from 0 */
export function requireTokenOffset(tokenOffset: number): number {
  if (Number.isSafeInteger(tokenOffset) && tokenOffset >= 0) return tokenOffset;
  throw new LockConfigInvalidError(
    `tokenOffset is ${JSON.stringify(tokenOffset)}; write the largest token of the store before, a whole number from 0 to ` +
      '2^53 - 1.',
  );
}
