import { ownerData } from './lock-node.js';
import { isSessionEnded } from './hold-session.js';
import {
  checkOf,
  hasZkCode,
  newNode,
  pathAndWatch,
  readStat,
  ZkCode,
  ZkError,
  ZkRequest,
  type ZkAuth,
  type ZkNode,
} from './zk-packets.js';
import { SessionEnded, type ZkConnection } from './zk-connection.js';

/** Makes the lock's node in the session of the connection; null when there is one. Makes the root if it is missing. */
export async function createLockNode(
  connection: ZkConnection,
  path: string,
  ownerId: string,
  where: { readonly root: string; readonly auth: ZkAuth | undefined },
  signal: AbortSignal,
): Promise<ZkNode | null> {
  const data = ownerData(ownerId, connection.ticket);
  const node = newNode(path, data, { ephemeral: true, owned: where.auth !== undefined });
  try {
    const reply = await connection.ask(ZkRequest.create2, node, signal);
    reply.text();
    return readStat(reply, data);
  } catch (error) {
    if (hasZkCode(error, ZkCode.nodeExists)) return null;
    if (!hasZkCode(error, ZkCode.noNode)) throw sessionError(error);
    await createRoot(connection, where.root, signal);
    return createLockNode(connection, path, ownerId, where, signal);
  }
}

/** Makes every node on the way to the root. They stay. */
export async function createRoot(connection: ZkConnection, root: string, signal: AbortSignal): Promise<void> {
  const names = root.split('/').slice(1);
  for (const [i] of names.entries()) {
    const path = `/${names.slice(0, i + 1).join('/')}`;
    const node = newNode(path, Buffer.alloc(0), { ephemeral: false, owned: false });
    try {
      await connection.ask(ZkRequest.create, node, signal);
    } catch (error) {
      if (!hasZkCode(error, ZkCode.nodeExists)) throw error;
    }
  }
}

/**
 * Whether the node at the path belongs to the session of the connection. Keeps the session alive.
 *
 * A server that was cut off from the others may read what is no longer so. The transaction in front changes nothing, but it
 * needs the leader and a majority, and the read comes after it.
 */
export async function askOwnNode(
  connection: ZkConnection,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  const agreed = connection.ask(ZkRequest.multi, checkOf(path), signal).catch((error: unknown) => {
    if (!(error instanceof ZkError) || isSessionEnded(sessionError(error))) throw sessionError(error);
    // A missing node fails the check; the read says the same.
  });
  const read = connection.ask(ZkRequest.exists, pathAndWatch(path, false), signal).then(
    (reply) => readStat(reply),
    (error: unknown) => {
      if (hasZkCode(error, ZkCode.noNode)) return null;
      throw sessionError(error);
    },
  );
  const [, node] = await Promise.all([agreed, read]);
  return node?.sessionId === connection.ticket.id;
}

/** Ends the session, and with it all that was made in it. */
export async function endSession(connection: ZkConnection, signal: AbortSignal): Promise<void> {
  await connection.ask(ZkRequest.closeSession, undefined, signal);
  connection.destroy();
}

function sessionError(error: unknown): unknown {
  const ended = hasZkCode(error, ZkCode.sessionExpired) || hasZkCode(error, ZkCode.sessionUnknown);
  return ended ? new SessionEnded() : error;
}
