import { AsyncLocalStorage } from 'node:async_hooks';

import type { EntityManager, QueryRunner } from 'typeorm';

import { FencedOutError, LockConfigInvalidError } from '../../core/index.js';
import type { FencedEntity } from '../entities/index.js';
import { override } from './override.js';
import type { Proof } from './proof.js';
import type { Turns } from '../connection/index.js';

/** A row that is about to be written, or its junction rows, by a statement which has no room for a guard. */
export interface Stamp {
  /** What protects the rows. */
  readonly entity: FencedEntity;
  /** The table that the statement will write, as TypeORM spells its path. */
  readonly table: string;
  /** What the statement will say. */
  readonly verb: 'DELETE' | 'UPDATE' | 'INSERT';
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
  /** The rows whose writes have got a guard. */
  readonly guarded: Set<object>;
  /** The entities of which it brings new rows. */
  readonly inserts: Set<FencedEntity>;
}

export interface OperationFollowers {
  /** A write of it was refused. */
  fencedOut(refusal: FencedOutError): void;
  /** save() has done what there was to do; the operation ends when this does. */
  saved(target: unknown, rows: readonly object[], operation: Operation): Promise<void>;
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

/** Makes calls of `manager` known to hooks and statements, and to those who follow them. */
export function followOperations(manager: EntityManager, turns: Turns, followers: OperationFollowers): void {
  for (const method of PERSIST_METHODS) {
    const original = manager[method].bind(manager) as (...args: unknown[]) => Promise<unknown>;
    const followed = async (...args: unknown[]): Promise<unknown> => {
      const { target, rows, options } = taken(args);
      const operation = newOperation(expectedLockToken(options));
      const run = async (): Promise<unknown> => {
        const result = await original(...args);
        if (method === 'save') await followers.saved(target, rows, operation);
        return result;
      };
      try {
        return await turns.take(() => storage.run(operation, run));
      } catch (error) {
        if (error instanceof FencedOutError) followers.fencedOut(error);
        throw error;
      }
    };
    override(manager, method, followed as EntityManager[PersistMethod]);
  }
}

function newOperation(expectedLockToken: number | undefined): Operation {
  return { expectedLockToken, handedOver: [], stamps: [], guarded: new Set(), inserts: new Set() };
}

interface Arguments {
  readonly target: unknown;
  readonly rows: readonly object[];
  readonly options: unknown;
}

/** (entity, options?) or (target, entity, options?), as TypeORM tells them apart. */
function taken(args: readonly unknown[]): Arguments {
  const [first] = args;
  const hasTarget =
    args.length > 1 && (typeof first !== 'object' || first === null || '@instanceof' in first);
  const [rows, options] = args.slice(hasTarget ? 1 : 0);
  const list = Array.isArray(rows) ? rows : [rows];
  return {
    target: hasTarget ? first : undefined,
    rows: list.filter((row): row is object => typeof row === 'object' && row !== null),
    options,
  };
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
