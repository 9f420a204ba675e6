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
import type { FencedEntity } from './fenced-entity.js';
import type { GuardExpressions } from './guard-expression.js';
import type { GuardedValues } from './guarded-values.js';
import { currentOperation, type Stamp } from './operations.js';
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
    const key = this.entity.keyOf(row);
    return key === null ? this.#guardKeyToCome(row) : this.#guardInsert(row, key, queryRunner);
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

  #guardKeyToCome(row: object): undefined {
    if (!this.entity.getsItsKey(row)) return this.#withoutToken({ entity: this.entity, path: 'insert' });
    this.parts.values.guard(row, { sql: this.parts.expressions.forKeyToCome(), token: null });
  }

  #guardInsert(row: object, key: string, runner: QueryRunner): Pending {
    const { proofs, expressions, values, refusals } = this.parts;
    const attempt = { entity: this.entity, path: 'insert', key };
    const checkRow = (now: object): void => {
      if (this.entity.keyOf(now) !== key) throw refusals.keyChange(attempt);
    };
    const proof = proofs.forKey(this.entity, key);
    if (proof) {
      values.guard(row, { sql: expressions.forInsert(proof), token: proof.token, checkRow });
      return this.parts.admission.admit(this.entity, [proof], runner);
    }
    if (this.entity.unfencedWrites !== 'refuse') return undefined;
    values.guard(row, { sql: expressions.forFreeInsert(proofs.qualifiedKeys(key)), token: null, checkRow });
    return undefined;
  }

  #guardSave(values: object, row: object, runner: QueryRunner): Pending {
    this.parts.values.leave(values);
    const key = this.entity.keyOf(row);
    const attempt = { entity: this.entity, path: 'save()', key };
    const proof = key === null ? null : this.parts.proofs.forKey(this.entity, key);
    if (!proof) return this.#withoutToken(attempt);
    const sql = this.parts.expressions.forUpdate(this.entity, [proof]);
    this.parts.values.guard(values, { sql, token: proof.token, checkChanges: this.#keepsKey(attempt) });
    return this.parts.admission.admit(this.entity, [proof], runner);
  }

  #guardUpdate(values: object, runner: QueryRunner): Pending {
    const { entity } = this;
    const attempt = { entity, path: 'update()' };
    this.parts.values.unname(entity, values);
    const proofs = this.parts.proofs.forEntity(entity);
    if (proofs.length === 0) return this.#withoutToken(attempt);
    const sql = this.parts.expressions.forUpdate(entity, proofs);
    this.parts.values.guardNamed(entity, values, { sql, token: null, checkChanges: this.#keepsKey(attempt) });
    return this.parts.admission.admit(entity, proofs, runner);
  }

  #keepsKey(attempt: Attempt): (changes: object) => void {
    return (changes) => {
      if (this.entity.touchesKey(changes)) throw this.parts.refusals.keyChange(attempt);
    };
  }

  #stampRow(event: RowEvent, verb: Stamp['verb'], statement: string, method: string): Pending {
    if (event.metadata !== this.entity.metadata || unfencedReason() !== undefined) return undefined;
    const { entity: row, databaseEntity, entityId, queryRunner } = event;
    const operation = currentOperation();
    if (!row || !operation) return this.#withoutRow(entityId ? 'orphan removal' : statement, method);
    const key = this.entity.keyOf(databaseEntity ?? row);
    const attempt = { entity: this.entity, path: method, key };
    const proof = key === null ? null : this.parts.proofs.forKey(this.entity, key);
    if (!proof) return this.#withoutToken(attempt);
    if (!queryRunner.isTransactionActive) {
      throw this.parts.refusals.unguarded(
        attempt,
        'It takes two statements, which need a transaction: leave out { transaction: false }.',
      );
    }
    operation.stamps.push(this.parts.stamps.stamp(this.entity, proof, databaseEntity ?? row, verb));
    return this.parts.admission.admit(this.entity, [proof], queryRunner);
  }

  #withoutToken(attempt: Attempt): undefined {
    if (this.entity.unfencedWrites === 'refuse' && unfencedReason() === undefined) {
      throw this.parts.refusals.noToken(attempt);
    }
  }

  #withoutRow(path: string, method: string): undefined {
    if (this.entity.unfencedWrites !== 'refuse') return;
    throw this.parts.refusals.unguarded(
      { entity: this.entity, path },
      `Load the rows under their lock and call ${method} with them.`,
    );
  }
}

interface RowEvent {
  readonly metadata: FencedEntity['metadata'];
  readonly queryRunner: QueryRunner;
  readonly entity?: ObjectLiteral;
  readonly databaseEntity?: ObjectLiteral;
  readonly entityId?: unknown;
}
