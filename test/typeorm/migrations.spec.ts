import type { MigrationInterface, QueryRunner } from 'typeorm';

import {
  addLockTokenColumn,
  addLockTokenColumnSql,
  dropLockTokenColumn,
  dropLockTokenColumnSql,
  installWriteTrigger,
  installWriteTriggerSql,
  removeWriteTrigger,
  type Dialect,
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

describeOnEachDatabase('Migrations', (start, type) => {
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

  it('find a table whose name needs quotes', async () => {
    const dataSource = await database.connect();
    const runner = dataSource.createQueryRunner();
    const table = `Order-${'x'.repeat(50)}`;
    await runner.query(`CREATE TABLE "${table}" (id int PRIMARY KEY)`);
    await addLockTokenColumn(runner, table, { column: 'lock_token' });
    await installWriteTrigger(runner, table);
    await runner.query(`INSERT INTO "${table}" (id) VALUES (1)`);
    await expect(runner.query(`DELETE FROM "${table}"`)).rejects.toThrow(`of table ${table} did not come`);
    await removeWriteTrigger(runner, table);
    await runner.query(`DELETE FROM "${table}" WHERE lock_token = 0`);
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
        expect(() => sql(type as Dialect, name)).toThrow(
          expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }),
        );
      }
      expect(() => addLockTokenColumnSql(type as Dialect, 'invoice', { column: name })).toThrow(
        'cannot name a table',
      );
    }
  });
});
