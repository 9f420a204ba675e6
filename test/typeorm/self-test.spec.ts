import type { DataSource, QueryRunner } from 'typeorm';

import { guardDataSource } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { Owners, type Owner } from './owners.js';

/** Changes statements on their way to the database, as a broken database or a proxy would change their meaning. */
function corrupt(dataSource: DataSource, change: (sql: string) => string): void {
  const create = dataSource.createQueryRunner.bind(dataSource);
  const changed = new WeakSet<QueryRunner>(); // SQLite has one for all
  dataSource.createQueryRunner = (mode): QueryRunner => {
    const runner = create(mode);
    if (changed.has(runner)) return runner;
    changed.add(runner);
    const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
    runner.query = ((sql: string, ...rest: unknown[]) => query(change(sql), ...rest)) as typeof runner.query;
    return runner;
  };
}

describeOnEachDatabase('The self-test of the guards', (start) => {
  let owners: Owners;
  let owner: Owner;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    owner = await owners.add();
  });
  afterAll(() => owners.stop());

  const body = (): Promise<string> => owner.locks.withLock('invoice:1', async () => 'entered');

  it('runs once, before the first lock, and leaves nothing behind', async () => {
    const dataSource = await owners.database.connect({ entities: [Invoice, InvoiceLine, Label] });
    const sent: string[] = [];
    corrupt(dataSource, (sql) => {
      sent.push(sql);
      return sql;
    });
    guardDataSource(dataSource, owner.locks);
    await Promise.all([body(), owner.locks.withLock('invoice:2', async () => undefined)]);
    expect(sent.filter((sql) => sql.includes('CREATE TEMPORARY TABLE'))).toHaveLength(1);
    expect(sent.at(-1)).toBe('ROLLBACK');
    const statements = sent.length;
    await body();
    expect(sent).toHaveLength(statements);
    const fences = await owner.dataSource.query<Record<string, unknown>[]>('SELECT * FROM lock_fence');
    expect(fences.map(({ key }) => String(key)).sort()).toEqual(['invoice:1', 'invoice:2']);
    await dataSource.destroy();
  });

  it.each([
    [
      'with an outdated token',
      (sql: string) => sql.replace(/END WHERE (?!id = 'another')/, 'ELSE 1 END WHERE '),
    ],
    [
      'of another owner with the same token',
      (sql: string) => sql.replace(/ AND .owner_id. = .*?(?= FROM)/, ''),
    ],
    [
      'to the row of another lock',
      (sql: string) => sql.replace(/CASE (WHEN INSTR.*?1 )?WHEN CAST.*? = .*? AND /, 'CASE WHEN '),
    ],
    [
      'that inserts a row with an outdated token',
      (sql: string) => sql.replace(/^(INSERT INTO .lock_self.*) END\)$/, '$1 ELSE 1 END)'),
    ],
  ])('finds a database that accepts a write %s, and lets nobody in', async (what, change) => {
    const dataSource = await owners.database.connect({ entities: [Invoice, InvoiceLine, Label] });
    corrupt(dataSource, (sql) => (sql.includes('lock_self_test') ? change(sql) : sql));
    guardDataSource(dataSource, owner.locks);
    for (let attempt = 1; attempt <= 2; attempt += 1)
      await expect(body()).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining(`a write ${what} was accepted`) as string,
      });
    expect(owner.locks.busy).toBe(false);
    await dataSource.destroy();
    expect(await body()).toBe('entered');
  });

  it('finds a token column that somebody has made nullable, and lets nobody in', async () => {
    const dataSource = await owners.database.connect({ entities: [Invoice, InvoiceLine, Label] });
    const column = dataSource.driver.escape('lockToken');
    const make = async (type: string): Promise<void> => {
      await dataSource.query(`ALTER TABLE invoice_line DROP COLUMN ${column}`);
      await dataSource.query(`ALTER TABLE invoice_line ADD COLUMN ${column} ${type}`);
    };
    await make('bigint DEFAULT 0');
    guardDataSource(dataSource, owner.locks);
    await expect(body()).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('column lockToken of table invoice_line takes NULL') as string,
    });
    await make('bigint NOT NULL DEFAULT 0');
    expect(await body()).toBe('entered');
    await dataSource.destroy();
  });
});
