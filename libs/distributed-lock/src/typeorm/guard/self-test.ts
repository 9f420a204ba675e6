import { randomBytes } from 'node:crypto';

import type { DataSource, EntityManager, QueryRunner } from 'typeorm';

import { LockConfigInvalidError, lockKey } from '../../core/index.js';
import type { FencedEntity } from '../entities/index.js';
import type { FenceRows } from '../fence/index.js';
import { type Dialect, driverCode, quoteName, rowsMatched } from '../sql/index.js';
import { GuardExpressions, type GuardedRow } from './guard-expression.js';
import type { Proof } from './proof.js';
import { isRefusedNull } from './refused-null.js';
import { unsafeTable } from './unsafe-tables.js';

export interface SelfTestParts {
  readonly dataSource: DataSource;
  readonly dialect: Dialect;
  readonly entities: readonly FencedEntity[];
  readonly rows: FenceRows;
  readonly fenceTable: string;
}

/** The role may not create temporary tables; MySQL with GTIDs, in old versions, not inside a transaction. */
const MAY_NOT_TRY =
  /^(?:42501|ER_\w*ACCESS_DENIED_ERROR|ER_GTID_UNSAFE_CREATE_DROP_TEMPORARY_TABLE_IN_TRANSACTION)$/;

const { template } = lockKey('lock self-test:<id>');

class Undone extends Error {}

/**
 * Proves, on a connection of the application, that this very database refuses a stale write: a real guard, a real fence row
 * and a temporary table, in a transaction that is rolled back. The key has 128 random bits, so no user waits for it.
 */
export class SelfTest {
  #passed: Promise<void> | undefined;

  constructor(private readonly parts: SelfTestParts) {}

  /**
   * Runs once, unless the database could not be asked.
   *
   * @throws {LockConfigInvalidError} a write passed that had to be refused, or a table or session cannot be guarded; says
   *   what was seen
   */
  passed(): Promise<void> {
    this.#passed ??= this.#run().catch((error: unknown) => {
      this.#passed = undefined;
      throw error;
    });
    return this.#passed;
  }

  async #run(): Promise<void> {
    const { dataSource, dialect, entities } = this.parts;
    if (entities.length === 0) return;
    const unsafe = await unsafeTable(dataSource, dialect, entities);
    if (unsafe) refuse(unsafe);
    const undone = new Undone();
    await dataSource.manager
      .transaction(async (manager) => {
        await new Trial(this.parts, manager).run();
        throw undone;
      })
      .catch((error: unknown) => {
        if (error === undone) return;
        if (!MAY_NOT_TRY.test(driverCode(error))) throw error;
        process.emitWarning(
          `Nobody tried whether this database refuses stale writes: ${String(error)}. Let the role of the application ` +
            'create temporary tables, for the self-test of nestjs-distributed-lock at boot.',
          { type: 'LockSelfTest', code: 'LOCK_CONFIG_INVALID' },
        );
      });
  }
}

/** One run of the test, inside its transaction. */
class Trial {
  readonly #nonce = randomBytes(16).toString('hex');
  readonly #table: string;
  readonly #column: string;
  readonly #row: GuardedRow;
  readonly #expressions: GuardExpressions;
  readonly #runner: QueryRunner;
  readonly #key = `lock self-test:${this.#nonce}`;

  constructor(
    private readonly parts: SelfTestParts,
    private readonly manager: EntityManager,
  ) {
    const { dialect, fenceTable } = parts;
    this.#runner = manager.queryRunner as QueryRunner;
    this.#table = quoteName(dialect, `lock_self_test_${this.#nonce}`);
    this.#column = quoteName(dialect, 'lock_token');
    this.#expressions = new GuardExpressions(dialect, fenceTable);
    this.#row = {
      template,
      keyColumns: [{ databaseName: 'id', type: 'varchar' }],
      tokenColumn: { databaseName: 'lock_token' },
    };
  }

  async run(): Promise<void> {
    const { dialect, rows } = this.parts;
    const engine = dialect === 'mysql' ? ' ENGINE = InnoDB' : '';
    await this.#runner.query(
      `CREATE TEMPORARY TABLE ${this.#table} (id varchar(64) NOT NULL PRIMARY KEY, ${this.#column} bigint NOT NULL DEFAULT 0)${engine}`,
    );
    try {
      await this.#runner.query(`INSERT INTO ${this.#table} (id) VALUES ('${this.#nonce}'), ('another')`);
      const [current, stale, foreign] = [this.#proof(2, 'new'), this.#proof(1, 'old'), this.#proof(2, 'old')];
      const { qualifiedKey, token } = current;
      if (!(await rows.raise(this.#runner, { qualifiedKey, token, ownerId: 'new', storeId: 'self-test' })))
        refuse('a fence could not be raised for a key that nobody knows');
      await this.#expectRow(current, 'by the newest owner');
      await this.#expectRow(current, 'by the newest owner that changes nothing');
      await this.#expectRefusal('with an outdated token', this.#update(stale, this.#nonce));
      await this.#expectRefusal('of another owner with the same token', this.#update(foreign, this.#nonce));
      await this.#expectRefusal('to the row of another lock', this.#update(current, 'another'));
      await this.#expectRefusal('that inserts a row with an outdated token', this.#insert(stale));
    } finally {
      // A rollback does not take it away on MySQL, and nothing can be done any more on PostgreSQL when something failed.
      if (dialect === 'mysql') await this.#runner.query(`DROP TEMPORARY TABLE ${this.#table}`);
    }
  }

  #proof(token: number, ownerId: string): Proof {
    return { key: this.#key, qualifiedKey: this.#key, token, ownerId, lease: null };
  }

  #update(proof: Proof, id: string): string {
    const guard = this.#expressions.forUpdate(this.#row, [proof]);
    return `UPDATE ${this.#table} SET ${this.#column} = ${guard} WHERE id = '${id}'`;
  }

  #insert(proof: Proof): string {
    return `INSERT INTO ${this.#table} (id, ${this.#column}) VALUES ('late', ${this.#expressions.forInsert(proof)})`;
  }

  async #expectRow(proof: Proof, what: string): Promise<void> {
    const found = rowsMatched(await this.#runner.query(this.#update(proof, this.#nonce), undefined, true));
    if (found !== 1) refuse(`a write ${what} found ${String(found)} rows instead of 1`);
  }

  /** In a savepoint: on PostgreSQL a statement that fails takes the whole transaction with it. */
  async #expectRefusal(what: string, sql: string): Promise<void> {
    const refusal: unknown = await this.manager
      .transaction((inner) => (inner.queryRunner as QueryRunner).query(sql))
      .then(
        () => refuse(`a write ${what} was accepted`),
        (error: unknown) => error,
      );
    if (!isRefusedNull(refusal)) throw refusal;
  }
}

function refuse(seen: string): never {
  throw new LockConfigInvalidError(
    `This database does not guard: ${seen}. No lock is given out for its entities until that is put right.`,
  );
}
