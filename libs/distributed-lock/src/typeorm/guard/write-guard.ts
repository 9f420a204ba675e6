import type {
  EntitySubscriberInterface,
  InsertEvent,
  ObjectLiteral,
  QueryRunner,
  RecoverEvent,
  RemoveEvent,
  SoftRemoveEvent,
  UpdateEvent,
} from 'typeorm';

import type { Admission } from './admission.js';
import type { FencedEntity } from '../entities/index.js';
import type { GuardExpressions } from './guard-expression.js';
import type { GuardedValues, TokenValue } from './guarded-values.js';
import { currentFencedCall } from './fenced-calls.js';
import { currentOperation, type Stamp } from './operations.js';
import type { Proof } from './proof.js';
import type { Proofs } from './proofs.js';
import type { Attempt, Refusals } from './refusals.js';
import type { RowStamps } from './row-stamps.js';
import { unfencedReason } from './unfenced.js';

export interface WriteGuardParts {
  readonly proofs: Proofs;
  readonly expressions: GuardExpressions;
  readonly values: GuardedValues;
  readonly stamps: RowStamps;
  readonly refusals: Refusals;
  readonly admission: Admission;
}

/** Hooks that need not wait return at once: TypeORM then builds its statement in the same turn. */
type Pending = Promise<void> | undefined;

const ORPHANS = 'orphan removal';

/** Puts the guard into every write of one entity that TypeORM announces. */
export class WriteGuard implements EntitySubscriberInterface {
  constructor(
    private readonly entity: FencedEntity,
    private readonly parts: WriteGuardParts,
  ) {}

  listenTo(): FencedEntity['target'] {
    return this.entity.target;
  }

  beforeInsert({ entity: row, metadata, queryRunner }: InsertEvent<ObjectLiteral>): Pending {
    if (metadata !== this.entity.metadata || !row) return undefined;
    this.parts.values.leave(row);
    if (unfencedReason() !== undefined) return undefined;
    const proofs = this.#proofsOf(this.entity.keyOf(row));
    this.parts.values.guard(row, (values) => this.#insertValue(values));
    const operation = currentOperation();
    operation?.guarded.add(row);
    operation?.inserts.add(this.entity);
    return this.parts.admission.admit(this.entity, proofs, queryRunner);
  }

  /** From save() there is the row as it was read; from update() and update query builders there are only new values. */
  beforeUpdate({
    entity: values,
    databaseEntity: row,
    metadata,
    queryRunner,
  }: UpdateEvent<ObjectLiteral>): Pending {
    // Without an object there is nowhere to put a guard: the statement will be refused when it is sent.
    if (metadata !== this.entity.metadata || !values) return undefined;
    return row ? this.#guardSave(values, row, queryRunner) : this.#guardUpdate(values, queryRunner);
  }

  afterInsert({ entity: row }: InsertEvent<ObjectLiteral>): void {
    if (row) this.parts.values.settle(this.entity, row);
  }

  afterUpdate({ entity: row }: UpdateEvent<ObjectLiteral>): void {
    if (row) this.parts.values.settle(this.entity, row);
  }

  beforeRemove(event: RemoveEvent<ObjectLiteral>): Pending {
    return this.#stampRow(event, 'DELETE', 'delete()', 'remove()');
  }

  beforeSoftRemove(event: SoftRemoveEvent<ObjectLiteral>): Pending {
    return this.#stampRow(event, 'UPDATE', 'softDelete()', 'softRemove()');
  }

  beforeRecover(event: RecoverEvent<ObjectLiteral>): Pending {
    return this.#stampRow(event, 'UPDATE', 'restore()', 'recover()');
  }

  /** What a key lacks before the statement is built, a cascade may have put among its values by then. */
  #insertValue(values: object): TokenValue {
    const { proofs, expressions } = this.parts;
    const key = this.entity.keyOf(values);
    if (key === null && this.entity.getsItsKey(values))
      return { sql: expressions.forKeyToCome(), token: null };
    const proof = key === null ? null : proofs.forKey(this.entity, key);
    if (proof) return { sql: expressions.forInsert(proof), token: proof.token };
    if (this.entity.unfencedWrites !== 'refuse') return { sql: '0', token: null };
    const path = currentFencedCall()?.path;
    if (key === null || path) throw this.#withoutKey({ entity: this.entity, path: path ?? 'insert', key });
    return { sql: expressions.forFreeInsert(proofs.qualifiedKeys(key)), token: null };
  }

  /** @param attempt at a row of no known key, or by a call that demands a lock */
  #withoutKey(attempt: Attempt): Error {
    if (attempt.key !== null) return this.parts.refusals.noToken(attempt);
    const advice =
      `Its key '${this.entity.template.text}' lacks a value that is not made for this row alone: give all its parts, and ` +
      'write under that lock.';
    return this.parts.refusals.unguarded(attempt, advice);
  }

  #guardSave(values: object, row: object, runner: QueryRunner): Pending {
    this.parts.values.leave(values);
    const attempt = { entity: this.entity, path: 'save()', key: this.entity.keyOf(row) };
    const proofs = this.#proofsOf(attempt.key);
    if (proofs.length === 0) return this.#withoutToken(attempt);
    this.parts.values.guard(values, (changes) => this.#updateValue(changes, proofs, attempt));
    currentOperation()?.guarded.add(values);
    return this.parts.admission.admit(this.entity, proofs, runner);
  }

  #guardUpdate(values: object, runner: QueryRunner): Pending {
    const attempt = { entity: this.entity, path: 'update()' };
    this.parts.values.unname(this.entity, values);
    const proofs = this.#proofsOf(null);
    if (proofs.length === 0) return this.#withoutToken(attempt);
    this.parts.values.guardNamed(this.entity, values, (changes) =>
      this.#updateValue(changes, proofs, attempt),
    );
    return this.parts.admission.admit(this.entity, proofs, runner);
  }

  #updateValue(changes: object, proofs: readonly Proof[], attempt: Attempt): TokenValue {
    if (this.entity.touchesKey(changes)) throw this.parts.refusals.keyChange(attempt);
    const token = proofs.length === 1 ? (proofs[0]?.token ?? null) : null;
    return { sql: this.parts.expressions.forUpdate(this.entity, proofs), token };
  }

  /** Where the row's key is not known here, the database finds the lock that protects it among those held. */
  #proofsOf(key: string | null): readonly Proof[] {
    if (key === null) return this.parts.proofs.forEntity(this.entity);
    const proof = this.parts.proofs.forKey(this.entity, key);
    return proof ? [proof] : [];
  }

  #stampRow(event: RowEvent, verb: Stamp['verb'], statement: string, method: string): Pending {
    if (event.metadata !== this.entity.metadata || unfencedReason() !== undefined) return undefined;
    const { entity: row, databaseEntity, entityId, queryRunner } = event;
    if (!row && !entityId && currentFencedCall())
      return this.parts.admission.admit(this.entity, this.#proofsOf(null), queryRunner);
    const operation = currentOperation();
    if (!row || !operation) return this.#withoutRow(entityId ? ORPHANS : statement, method);
    // TypeORM reads the row before, but not its relations.
    const key = (databaseEntity && this.entity.keyOf(databaseEntity)) ?? this.entity.keyOf(row);
    const attempt = { entity: this.entity, path: method, key };
    const proofs = this.#proofsOf(key);
    if (proofs.length === 0) return this.#withoutToken(attempt);
    if (!queryRunner.isTransactionActive) {
      throw this.parts.refusals.unguarded(
        attempt,
        'It takes two statements, which need a transaction: leave out { transaction: false }.',
      );
    }
    const lets = { table: this.entity.metadata.tablePath, verb };
    operation.stamps.push(this.parts.stamps.stamp(this.entity, proofs, databaseEntity ?? row, lets));
    return this.parts.admission.admit(this.entity, proofs, queryRunner);
  }

  #withoutToken(attempt: Attempt): undefined {
    if (this.entity.unfencedWrites === 'refuse' && unfencedReason() === undefined) {
      throw this.parts.refusals.noToken(attempt);
    }
  }

  #withoutRow(path: string, method: string): undefined {
    if (this.entity.unfencedWrites !== 'refuse') return;
    const load = `oad the rows under their lock and call ${method} with them.`;
    const advice = path === ORPHANS ? `L${load}` : `Use fenced(repository).${path}, or l${load}`;
    throw this.parts.refusals.unguarded({ entity: this.entity, path }, advice);
  }
}

interface RowEvent {
  readonly metadata: FencedEntity['metadata'];
  readonly queryRunner: QueryRunner;
  readonly entity?: ObjectLiteral;
  readonly databaseEntity?: ObjectLiteral;
  readonly entityId?: unknown;
}
