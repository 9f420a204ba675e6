import type { SessionTicket, ZkNode } from './zk-packets.js';

/** What a lock's node says of its owner. */
export interface LockOwner {
  readonly ownerId: string;
  readonly ticket: SessionTicket;
}

/**
 * A path for every key: characters of other alphabets and all punctuation are encoded, so that no key reaches out of the
 * root, and no two share a node.
 */
export function pathOf(root: string, key: string): string {
  return `${root}/${encodeURIComponent(Buffer.from(key).toString()).replace(/[.!~*'()]/g, hexOf)}`;
}

const hexOf = (sign: string): string => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`;

/** The password of the session is kept with the lock, so that who knows the owner id can renew and release from anywhere. */
export function ownerData(ownerId: string, { password }: SessionTicket): Buffer {
  return Buffer.from(JSON.stringify({ ownerId, password: password.toString('base64') }));
}

/** Null for a node that is no lock. */
export function ownerOf({ data, sessionId }: ZkNode): LockOwner | null {
  try {
    const { ownerId, password } = JSON.parse(data.toString()) as Record<string, unknown>;
    if (sessionId === 0n || typeof ownerId !== 'string' || typeof password !== 'string') return null;
    return { ownerId, ticket: { id: sessionId, password: Buffer.from(password, 'base64') } };
  } catch {
    return null; // not written by us
  }
}
