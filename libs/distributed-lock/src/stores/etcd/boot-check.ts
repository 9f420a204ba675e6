import { randomBytes } from 'node:crypto';

import { LockConfigInvalidError, StoreUnavailableError, withDeadline } from '../../core/index.js';
import type { EtcdCommands } from './etcd-commands.js';
import { EtcdError, isForbidden, isLoginWrong } from './gateway-answer.js';
import { leaseOf } from './lease-of.js';

const BOOT_TIMEOUT_MS = 5_000;

/**
 * Looks at the cluster once.
 *
 * @returns the shortest lease that it keeps, in seconds
 * @throws {StoreUnavailableError} it cannot be reached
 * @throws {LockConfigInvalidError} it cannot keep locks; says what to change
 */
export async function checkCluster(
  commands: EtcdCommands,
  address: string,
  keyPrefix: string,
): Promise<number> {
  try {
    return await withDeadline(BOOT_TIMEOUT_MS, (signal) => look(commands, keyPrefix, signal));
  } catch (cause) {
    const advice = adviceOn(cause, keyPrefix);
    if (advice)
      throw new LockConfigInvalidError(`etcd at ${address} cannot keep locks: ${advice}`, { cause });
    throw new StoreUnavailableError(
      `etcd at ${address} gave no answer. Nothing was locked; check that it runs and the address is right.`,
      { cause },
    );
  }
}

async function look(commands: EtcdCommands, keyPrefix: string, signal: AbortSignal): Promise<number> {
  await commands.read([keyPrefix], signal);
  const leaseId = leaseOf({ key: 'boot', ownerId: randomBytes(16).toString('hex') });
  const shortest = await commands.grantLease(leaseId, 1, signal);
  await commands.revokeLease(leaseId, signal);
  return Math.max(1, shortest);
}

function adviceOn(cause: unknown, keyPrefix: string): string | undefined {
  if (isLoginWrong(cause)) return `${messageOf(cause)}. Pass the right auth: { username, password }.`;
  if (isForbidden(cause)) return `this user may not read and write keys that begin with "${keyPrefix}".`;
  if (!(cause instanceof EtcdError) || cause.code !== undefined) return undefined;
  return (
    'its JSON gateway does not answer. Version 3.4 or newer is needed, with enable-grpc-gateway switched on ' +
    '(a configuration file without that line switches it off).'
  );
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
