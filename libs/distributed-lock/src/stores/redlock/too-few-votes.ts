import { messageOf } from '../../redis-server/index.js';
import type { RedlockNode } from './redlock-node.js';
import { majorityOf } from './poll.js';

/** What a server said; nothing when it has not answered yet. */
export type Said = { readonly kind: string; readonly cause?: unknown } | undefined;

/** Not busy: without a majority nobody can tell who holds a lock. Names every server with its reason. */
export function tooFewVotes(
  what: string,
  nodes: readonly RedlockNode[],
  said: (node: RedlockNode) => Said,
): Error {
  const needed = majorityOf(nodes.length);
  const reasons = nodes.map((node) => `${node.name}: ${reasonOf(said(node))}`);
  return new Error(
    `${what}: ${needed} of ${nodes.length} Redis servers have to agree, and too few did (${reasons.join('; ')})`,
    { cause: nodes.map((node) => said(node)?.cause).find((cause) => cause !== undefined) },
  );
}

function reasonOf(said: Said): string {
  if (said === undefined) return 'no answer';
  if (said.kind === 'outside')
    return 'it has lost its data, and does not vote until it has been kept out for long enough';
  return said.kind === 'silent' ? messageOf(said.cause) || String(said.cause) : said.kind;
}
