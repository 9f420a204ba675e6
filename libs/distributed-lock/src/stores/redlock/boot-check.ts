import { isLockError, LockConfigInvalidError, StoreUnavailableError } from '../../core/index.js';
import { messageOf, readInfo, requireUsable, type ServerInfo } from '../../redis-server/index.js';
import { majorityOf } from './poll.js';
import type { RedlockNode } from './redlock-node.js';

/**
 * Looks at every server once. A minority may be away.
 *
 * @throws {StoreUnavailableError} a majority cannot be reached; names each server that cannot
 * @throws {LockConfigInvalidError} locks would not be safe on these servers; says why for each, and what to change
 */
export async function checkServers(nodes: readonly RedlockNode[], allowEviction: boolean): Promise<void> {
  const told = await Promise.allSettled(nodes.map(({ link }) => readInfo(link)));
  const faults: string[] = [];
  const away: string[] = [];
  const infos = new Map<RedlockNode, ServerInfo>();
  for (const [i, node] of nodes.entries()) {
    const answer = told[i];
    if (answer?.status === 'fulfilled') infos.set(node, answer.value);
    else away.push(`${node.name}: ${messageOf(causeOf(answer?.reason))}`);
  }
  for (const [node, info] of infos) faults.push(...faultsOf(node, info, allowEviction));
  faults.push(...faultsAmong(infos));
  if (faults.length > 0)
    throw new LockConfigInvalidError(`redlockStore() cannot keep locks. ${faults.join(' ')}`);
  if (infos.size >= majorityOf(nodes.length)) return;
  throw new StoreUnavailableError(
    `${away.length} of ${nodes.length} Redis servers gave no answer (${away.join('; ')}). ` +
      'Nothing was locked; check that they run and the addresses are right.',
    { cause: told.find((answer) => answer.status === 'rejected')?.reason },
  );
}

function faultsOf(node: RedlockNode, info: ServerInfo, allowEviction: boolean): string[] {
  try {
    requireUsable(info, node.name, allowEviction);
    return [];
  } catch (error) {
    if (!isLockError(error)) throw error;
    return [error.message];
  }
}

/** A server under two addresses would vote twice. */
function faultsAmong(infos: ReadonlyMap<RedlockNode, ServerInfo>): string[] {
  const names = new Map<string, string>();
  return [...infos].flatMap(([node, { run_id: process }]) => {
    if (process === undefined) return [];
    const first = names.get(process);
    names.set(process, node.name);
    return first === undefined
      ? []
      : [`${first} and ${node.name} are the same server; name servers that fail independently.`];
  });
}

function causeOf(error: unknown): unknown {
  const cause = (error as { readonly cause?: { readonly cause?: unknown } } | undefined)?.cause;
  return cause?.cause ?? cause ?? error;
}
