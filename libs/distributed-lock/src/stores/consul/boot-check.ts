import { randomBytes } from 'node:crypto';

import { LockConfigInvalidError, StoreUnavailableError, withDeadline } from '../../core/index.js';
import { ConsulError, isForbidden, isTokenUnknown, type TtlLimits } from './consul-answer.js';
import type { ConsulCommands } from './consul-commands.js';
import { nameOf } from './key-name.js';

const BOOT_TIMEOUT_MS = 5_000;
/** Servers may keep much shorter sessions, which would end while a slow one is still tried out. */
const LEAST_SESSION_MS = 2 * BOOT_TIMEOUT_MS;

/**
 * Looks at the servers behind the agent once, and takes a lock for a moment.
 *
 * @returns the shortest and the longest session that they keep
 * @throws {StoreUnavailableError} the agent, or a leader behind it, cannot be reached
 * @throws {LockConfigInvalidError} it cannot keep locks; says what to change
 */
export async function checkAgent(
  commands: ConsulCommands,
  address: string,
  keyPrefix: string,
): Promise<TtlLimits> {
  try {
    return await withDeadline(BOOT_TIMEOUT_MS, (signal) => look(commands, keyPrefix, signal));
  } catch (cause) {
    const advice = adviceOn(cause, keyPrefix);
    if (advice) {
      throw new LockConfigInvalidError(`Consul at ${address} cannot keep locks: ${advice}`, { cause });
    }
    throw new StoreUnavailableError(
      `Consul at ${address} gave no usable answer (${messageOf(cause)}). Nothing was locked; check that the agent runs, that ` +
        'its servers have a leader, and that the address is right.',
      { cause },
    );
  }
}

async function look(commands: ConsulCommands, keyPrefix: string, signal: AbortSignal): Promise<TtlLimits> {
  const limits = await commands.ttlLimits(signal);
  const name = nameOf(keyPrefix, `boot:${randomBytes(16).toString('hex')}`);
  const ttlMs = Math.min(Math.max(limits.minMs, LEAST_SESSION_MS), limits.maxMs);
  const sessionId = await commands.createSession({ name, ttlMs, lockDelayMs: 0 }, signal);
  try {
    await commands.tryOut({ name, sessionId }, signal);
  } finally {
    await commands.destroySession(sessionId, signal).catch(() => undefined); // it is empty, and ends by itself
  }
  return limits;
}

function adviceOn(cause: unknown, keyPrefix: string): string | undefined {
  if (isTokenUnknown(cause)) return 'it does not know this ACL token. Pass the right token.';
  if (isForbidden(cause)) {
    return (
      `this ACL token may not begin sessions on the agent's node (session:write), or not write keys that begin with ` +
      `"${keyPrefix}" (key:write). Pass a token that may, or another keyPrefix.`
    );
  }
  if (!(cause instanceof ConsulError) || (cause.status ?? 404) >= 500) return undefined;
  return `what answers is not the API of Consul 1.8 or newer (${cause.message}).`;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
