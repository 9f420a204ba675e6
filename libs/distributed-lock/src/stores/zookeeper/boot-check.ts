import { LockConfigInvalidError, StoreUnavailableError, withDeadline } from '../../core/index.js';
import { hasZkCode, NO_TICKET, ZkCode, ZkRequest } from './zk-packets.js';
import type { OpenConnection } from './hold-session.js';

const BOOT_TIMEOUT_MS = 5_000;
/** The largest number that the protocol takes. */
const LONGEST_MS = 2 ** 31 - 1;

/** How long the server keeps sessions that it has not heard of. */
export interface SessionLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/**
 * Looks at the ensemble once, and makes the root.
 *
 * @throws {StoreUnavailableError} it cannot be reached
 * @throws {LockConfigInvalidError} this user may not lock there
 */
export async function checkEnsemble(
  connect: OpenConnection,
  makeRoot: (signal: AbortSignal) => Promise<void>,
  where: { readonly address: string; readonly root: string },
): Promise<SessionLimits> {
  const limit = (wishMs: number, signal: AbortSignal): Promise<number> => keptFor(connect, wishMs, signal);
  try {
    return await withDeadline(BOOT_TIMEOUT_MS, async (signal) => {
      await makeRoot(signal);
      return { minMs: await limit(1, signal), maxMs: await limit(LONGEST_MS, signal) };
    });
  } catch (cause) {
    if (hasZkCode(cause, ZkCode.noAuth) || hasZkCode(cause, ZkCode.authFailed)) {
      throw new LockConfigInvalidError(
        `ZooKeeper at ${where.address} does not let this user lock under ${where.root}: pass the right auth, or another root.`,
        { cause },
      );
    }
    throw new StoreUnavailableError(
      `ZooKeeper at ${where.address} gave no answer. Nothing was locked; check that it runs and the address is right.`,
      { cause },
    );
  }
}

async function keptFor(connect: OpenConnection, wishMs: number, signal: AbortSignal): Promise<number> {
  const connection = await connect(NO_TICKET, wishMs, signal);
  await connection.ask(ZkRequest.closeSession, undefined, signal);
  connection.destroy();
  return connection.timeoutMs;
}
