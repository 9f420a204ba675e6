import { AsyncLocalStorage } from 'node:async_hooks';

import type { EntityManager, QueryRunner } from 'typeorm';

import { FencedOutError, LockConfigInvalidError } from '../../core/index.js';
import type { FencedEntity } from '../entities/index.js';
import { override } from './override.js';
import type { Proof } from './proof.js';
import type { Turns } from '../connection/index.js';

/** A row that is about to be removed, soft-removed or recovered by a statement which carries no values. */
export interface Stamp {
  readonly entity: FencedEntity;
  /** What the statement will say. */
  readonly verb: 'DELETE' | 'UPDATE';
  /** Writes the token onto the row, guarded. */
  run(runner: QueryRunner): Promise<void>;
}

/** One call of save(), remove(), softRemove() or recover(), with all its cascades. */
export interface Operation {
  readonly expectedLockToken: number | undefined;
  /** Tokens that were handed over and have been shown. */
  readonly handedOver: Proof[];
  /** To be run before the statement that they are for; each lets one such statement pass. */
  readonly stamps: Stamp[];
}

type PersistMethod = 'save' | 'remove' | 'softRemove' | 'recover';
const PERSIST_METHODS: readonly PersistMethod[] = ['save', 'remove', 'softRemove', 'recover'];

/**
 * Not the query runner's `data`: on SQLite all calls share one query runner, and calls side by side see and leave each
 * other's.
 */
const storage = new AsyncLocalStorage<Operation>();

export function currentOperation(): Operation | undefined {
  return storage.getStore();
}

/** Makes calls of `manager` known to hooks and statements, and tells when one was fenced out. */
export function followOperations(
  manager: EntityManager,
  turns: Turns,
  onFencedOut: (refusal: FencedOutError) => void,
): void {
  for (const method of PERSIST_METHODS) {
    const original = manager[method].bind(manager) as (...args: unknown[]) => Promise<unknown>;
    const followed = async (...args: unknown[]): Promise<unknown> => {
      const expected = expectedLockToken(optionsAmong(args));
      const operation = { expectedLockToken: expected, handedOver: [], stamps: [] };
      try {
        return await turns.take(() => storage.run(operation, () => original(...args)));
      } catch (error) {
        if (error instanceof FencedOutError) onFencedOut(error);
        throw error;
      }
    };
    override(manager, method, followed as EntityManager[PersistMethod]);
  }
}

/** (entity, options?) or (target, entity, options?), as TypeORM tells them apart. */
function optionsAmong(args: readonly unknown[]): unknown {
  const [first] = args;
  const hasTarget =
    args.length > 1 && (typeof first !== 'object' || first === null || '@instanceof' in first);
  return args[hasTarget ? 2 : 1];
}

function expectedLockToken(options: unknown): number | undefined {
  const data = (options as { data?: unknown } | undefined)?.data;
  if (typeof data !== 'object' || data === null || !('expectedLockToken' in data)) return undefined;
  const token = data.expectedLockToken;
  if (Number.isSafeInteger(token) && (token as number) > 0) return token as number;
  throw new LockConfigInvalidError(
    `expectedLockToken is ${typeof token === 'string' ? `'${token}'` : String(token)}; pass the token of the hold, a ` +
      'positive safe integer. Nothing was written.',
  );
}
