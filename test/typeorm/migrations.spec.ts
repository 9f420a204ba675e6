import type { MigrationInterface, QueryRunner } from 'typeorm';

import {
  addLockTokenColumn,
  addLockTokenColumnSql,
  createLockTables,
  createLockTablesSql,
  dropLockTables,
  dropLockTablesSql,
  dropLockTokenColumn,
  dropLockTokenColumnSql,
  installWriteTrigger,
  installWriteTriggerSql,
  removeWriteTrigger,
} from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { outsiderOf } from './outsiders.js';

const entities = [Invoice, InvoiceLine, Label];

/** As an application would write it, long after the table was made. */
class FenceInvoices1700000000000 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    for (const table of ['invoice', 'invoice_line']) {
      await addLockTokenColumn(runner, table);
      await installWriteTrigger(runner, table);
    }
  }

  async down(runner: QueryRunner): Promise<void> {
    for (const table of ['invoice', 'invoice_line']) {
      await removeWriteTrigger(runner, table);
      await dropLockTokenColumn(runner, table);
    }
  }
}

class LockTables1700000000001 implements MigrationInterface {
  up(runner: QueryRunner): Promise<void> {
    return createLockTables(runner);
  }

  down(runner: QueryRunner): Promise<void> {
    return dropLockTables(runner);
  }
}

describeOnEachDatabase('Migrations', (start, dialect) => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await start();
  });
  afterAll(() => database.stop());

  it('add what the entities expect to a table with rows, and take it away again', async () => {
    const migrations = [FenceInvoices1700000000000];
    const dataSource = await database.connect({ entities, migrations, synchronize: true });
    const outsider = await outsiderOf(dataSource);
    for (const table of ['invoice', 'invoice_line'])
      await outsider.run(`ALTER TABLE ${table} DROP COLUMN "lockToken"`);
    await outsider.run(`INSERT INTO invoice (id, "addressCity", version) VALUES ('1', '', 1), ('2', '', 1)`);
    const setPaid = () => outsider.run(`UPDATE invoice SET paid = paid + 1 WHERE id = '1'`);

    await dataSource.runMigrations();
    const rows = await dataSource.getRepository(Invoice).find({ select: { id: true, lockToken: true } });
    expect(rows.map(({ lockToken }) => lockToken)).toEqual([0, 0]);
    const { upQueries } = await dataSource.driver.createSchemaBuilder().log();
    expect(upQueries.map(({ query }) => query)).toEqual([]);
    await expect(setPaid()).rejects.toThrow('did not come through the guards');

    await dataSource.undoLastMigration();
    await setPaid();
    await expect(
      outsider.run('SELECT "lockToken" AS missing FROM invoice i WHERE i."lockToken" = 0'),
    ).rejects.toThrow();
    await outsider.stop();
    await dataSource.destroy();
  });

  it('create the tables of locks and fences in the transaction of the migration, and drop them', async () => {
    const migrations = [LockTables1700000000001];
    const dataSource = await database.connect({ migrations });
    const runner = dataSource.createQueryRunner();
    const tables = async () => {
      const found: boolean[] = [];
      for (const name of ['lock_lease', 'lock_fence', 'idempotency_record'])
        found.push(await runner.hasTable(name));
      return found.join();
    };
    await dataSource.runMigrations();
    expect(await tables()).toBe('true,true,false');
    for (const sql of createLockTablesSql(dialect)) await runner.query(sql);
    await dataSource.undoLastMigration();
    expect(await tables()).toBe('false,false,false');
    for (const sql of createLockTablesSql(dialect)) await runner.query(sql);
    expect(await tables()).toBe('true,true,false');
    for (const sql of dropLockTablesSql(dialect)) await runner.query(sql);
    if (dialect !== 'mysql') {
      await createLockTables(runner, { idempotency: true });
      expect(await tables()).toBe('true,true,true');
      await dropLockTables(runner, { idempotency: true });
      expect(await tables()).toBe('false,false,false');
    }
    await runner.release();
    await dataSource.destroy();
  });

  it('write SQL that is to be read: each statement whole, and nothing done', () => {
    const sql = [
      ...createLockTablesSql(dialect),
      ...addLockTokenColumnSql(dialect, 'invoice'),
      ...installWriteTriggerSql(dialect, 'invoice', { primaryKey: ['id'] }),
    ];
    expect(sql.every((statement) => /^(?:CREATE|ALTER|DROP) /.test(statement))).toBe(true);
    expect(addLockTokenColumnSql('postgres', 'billing.invoice')).toEqual([
      'ALTER TABLE "billing"."invoice" ADD COLUMN "lockToken" bigint NOT NULL DEFAULT 0',
    ]);
    expect(createLockTablesSql('postgres', { schema: 'billing' }).join()).toMatch(
      /"billing"."lock_lease".*"billing"."lock_fence"/s,
    );
  });

  it('find a table whose name needs quotes', async () => {
    const dataSource = await database.connect();
    const runner = dataSource.createQueryRunner();
    const table = `Order-${'x'.repeat(50)}`;
    const quoted = dataSource.driver.escape(table);
    await runner.query(`CREATE TABLE ${quoted} (id int PRIMARY KEY)`);
    await addLockTokenColumn(runner, table, { column: 'lock_token' });
    await installWriteTrigger(runner, table);
    await runner.query(`INSERT INTO ${quoted} (id) VALUES (1)`);
    await expect(runner.query(`DELETE FROM ${quoted}`)).rejects.toThrow(`of table ${table} did not come`);
    await removeWriteTrigger(runner, table);
    await runner.query(`DELETE FROM ${quoted} WHERE lock_token = 0`);
    await runner.release();
    await dataSource.destroy();
  });

  it('refuse names that cannot be names', () => {
    for (const name of [
      '',
      'a.b.c',
      'invoice"; DROP TABLE invoice; --',
      '.invoice',
      'x'.repeat(64),
      "it's",
    ]) {
      for (const sql of [addLockTokenColumnSql, dropLockTokenColumnSql, installWriteTriggerSql]) {
        expect(() => sql(dialect, name)).toThrow(expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }));
      }
      expect(() => addLockTokenColumnSql(dialect, 'invoice', { column: name })).toThrow(
        'cannot name a table',
      );
    }
  });
});
