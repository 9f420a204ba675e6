import {
  installWriteTrigger,
  installWriteTriggerSql,
  removeWriteTrigger,
  removeWriteTriggerSql,
  unfenced,
} from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { outsiderOf, type Outsider } from './outsiders.js';
import { empty, Owners, seed, type Owner } from './owners.js';

const TABLES = ['invoice', 'invoice_line'];
const SENTENCE = /Refused, nothing was changed: \w+ of table invoice did not come through the guards/;
/** InnoDB runs no triggers for them. */
const seesCascades = (dialect: string): boolean => dialect !== 'mysql';

describeOnEachDatabase('The trigger against writes from outside', (start, dialect) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let plain: Owner;
  let outsider: Outsider;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    owner = await owners.add();
    successor = await owners.add();
    plain = await owners.add({ plain: true });
    outsider = await outsiderOf(plain.dataSource);
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id);
    await inMigration(installWriteTrigger);
  });
  afterAll(async () => {
    await outsider.stop();
    await owners.stop();
  });

  const inMigration = async (change: typeof installWriteTrigger): Promise<void> => {
    const runner = plain.dataSource.createQueryRunner();
    for (const table of TABLES) await change(runner, table);
    await runner.release();
  };
  const quoted = (name: string) => owner.dataSource.driver.escape(name);
  const row = () => owner.repository(Invoice).findOneByOrFail({ id });
  const onConflict = dialect === 'mysql' ? 'ON DUPLICATE KEY UPDATE' : 'ON CONFLICT (id) DO UPDATE SET';
  /** What only this database has. */
  const ofItsOwn = (): string[] =>
    dialect === 'postgres'
      ? ['TRUNCATE invoice CASCADE', `DO 'BEGIN UPDATE invoice SET paid = 1; END'`]
      : [`REPLACE INTO invoice (id, "addressCity", version) VALUES ('${id}', '', 1)`];
  const byHand = (): string[] => [
    `UPDATE invoice SET status = 'TAMPERED' WHERE id = '${id}'`,
    `UPDATE invoice SET paid = paid WHERE id = '${id}'`,
    `UPDATE invoice SET "lockToken" = "lockToken" - 1 WHERE id = '${id}'`,
    `UPDATE invoice SET status = 'TAMPERED', "lockToken" = "lockToken" WHERE id = '${id}'`,
    `UPDATE invoice SET status = 'TAMPERED', "lockToken" = "lockToken" + 1 WHERE id = '${id}'`,
    `INSERT INTO invoice (id, "addressCity", version) VALUES ('${id}', '', 1) ${onConflict} status = 'TAMPERED'`,
    `DELETE FROM invoice WHERE id = '${id}'`,
    ...ofItsOwn(),
  ];

  it('refuses each UPDATE and DELETE of a bare driver, in a sentence, whatever token it names', async () => {
    const before = await row();
    for (const sql of byHand())
      await expect(outsider.run(sql)).rejects.toThrow(
        expect.objectContaining({ message: expect.stringMatching(SENTENCE) }),
      );
    expect(await row()).toEqual(before);
  });

  it('refuses them also when the row carries the token of the present owner', async () => {
    const lease = await owners.hold(owner, `invoice:${id}`);
    await lease.run(() => owner.repository(Invoice).update({ id }, { paid: 7 }));
    for (const sql of byHand()) await expect(outsider.run(sql)).rejects.toThrow(SENTENCE);
    expect(await row()).toMatchObject({ paid: 7, status: 'READY' });
    await lease.release();
  });

  it('refuses a DataSource that is not guarded', async () => {
    const invoices = plain.repository(Invoice);
    await expect(invoices.update({ id }, { paid: 1 })).rejects.toThrow(SENTENCE);
    await expect(invoices.save(Object.assign(await row(), { paid: 1 }))).rejects.toThrow(SENTENCE);
    await expect(invoices.delete({ id })).rejects.toThrow(SENTENCE);
  });

  it('lets the same statements pass where it has been removed (positive control)', async () => {
    await inMigration(removeWriteTrigger);
    await inMigration(removeWriteTrigger);
    await outsider.run(`DELETE FROM invoice_line WHERE "invoiceId" = '${id}'`);
    for (const sql of byHand()) await outsider.run(sql);
  });

  it(`${seesCascades(dialect) ? 'refuses' : 'does not see'} what a foreign key deletes with its parent`, async () => {
    await plain.dataSource.query('CREATE TABLE box (id int PRIMARY KEY)');
    await plain.dataSource.query(
      'CREATE TABLE boxed (id int PRIMARY KEY, box int, FOREIGN KEY (box) REFERENCES box (id) ON DELETE CASCADE)',
    );
    const runner = plain.dataSource.createQueryRunner();
    await installWriteTrigger(runner, 'boxed');
    await runner.release();
    await outsider.run('INSERT INTO box (id) VALUES (1)');
    await outsider.run('INSERT INTO boxed (id, box) VALUES (2, 1)');
    const removed = outsider.run('DELETE FROM box WHERE id = 1');
    if (seesCascades(dialect))
      await expect(removed).rejects.toThrow(/nothing was changed: DELETE of table boxed/);
    else await removed;
    const left = await plain.dataSource.query<unknown[]>('SELECT id FROM boxed');
    expect(left).toHaveLength(seesCascades(dialect) ? 1 : 0);
  });

  it('lets new rows of others in', async () => {
    await outsider.run(`INSERT INTO invoice (id, "addressCity", version) VALUES ('${id}-new', '', 1)`);
    expect(await owner.repository(Invoice).existsBy({ id: `${id}-new` })).toBe(true);
  });

  it('lets every guarded write pass: rows, lines, cascades, soft and hard removal', async () => {
    const lease = await owners.hold(owner, `invoice:${id}`);
    await lease.run(async () => {
      const invoices = owner.repository(Invoice);
      const invoice = await invoices.findOneOrFail({ where: { id }, relations: { lines: true } });
      invoice.paid = 1;
      invoice.lines[0]!.text = 'changed by a cascade';
      await invoices.save(invoice);
      await invoices.update({ id }, { status: 'OPEN' });
      await invoices.increment({ id }, 'paid', 2);
      await invoices
        .createQueryBuilder()
        .update()
        .set({ paid: () => 'paid + 3' })
        .where({ id })
        .execute();
      await invoices.softRemove(await row());
      await invoices.recover(await invoices.findOneOrFail({ where: { id }, withDeleted: true }));
      await owner.dataSource.transaction(async (manager) => {
        await manager.update(Invoice, { id }, { status: 'SETTLED' });
        await manager.remove(await manager.findBy(InvoiceLine, { invoice: { id } }));
      });
      expect(await row()).toMatchObject({ paid: 6, status: 'SETTLED' });
      await invoices.remove(await row());
      await invoices.insert({ id });
    });
    await lease.release();
  });

  it('lets unfenced writes pass, whatever they are', async () => {
    await unfenced('repair', async () => {
      await owner.repository(Invoice).update({ id }, { status: 'REPAIRED' });
      await owner.dataSource.query(`UPDATE invoice SET ${quoted('lockToken')} = 0 -- at the end a comment`);
      await owner.dataSource.transaction((manager) => manager.delete(InvoiceLine, { invoice: { id } }));
      expect((await row()).status).toBe('REPAIRED');
      await owner.repository(Invoice).delete({ id });
    });
    expect(await owner.repository(Invoice).countBy({ id })).toBe(0);
  });

  it('lets writes pass that the roll-out only warns of', async () => {
    const lenient = await owners.add({ unfencedWrites: 'allow' });
    await lenient.repository(Invoice).update({ id }, { status: 'NO LOCK YET' });
    await lenient.repository(InvoiceLine).delete({ invoice: { id } });
    expect((await row()).status).toBe('NO LOCK YET');
  });

  if (dialect === 'postgres') {
    it('refuses a function of the database that writes past the guard, unless it is called inside unfenced()', async () => {
      await outsider.run(
        `CREATE OR REPLACE FUNCTION pay(which text) RETURNS void LANGUAGE sql AS 'UPDATE invoice SET paid = 5 WHERE id = which'`,
      );
      const call = () => owner.dataSource.query('SELECT pay($1)', [id]);
      await expect(call()).rejects.toThrow(SENTENCE);
      await unfenced('by the old function', call);
      expect(await row()).toMatchObject({ paid: 5 });
    });
  }

  it('leaves it to the guard to refuse a stale owner', async () => {
    const stale = await owners.hold(owner, `invoice:${id}`);
    const current = await owners.takeOver(stale, successor);
    const late = stale.run(() => owner.repository(Invoice).update({ id }, { paid: 1 }));
    await expect(late).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await current.release();
    await stale.release();
  });

  it('costs a guarded update no statement', async () => {
    const statements: string[] = [];
    owner.dataSource.subscribers.push({ beforeQuery: ({ query }) => void statements.push(query) });
    const lease = await owners.hold(owner, `invoice:${id}`);
    statements.length = 0;
    await lease.run(() => owner.repository(Invoice).update({ id }, { paid: 1 }));
    expect(statements).toHaveLength(1);
    await lease.release();
  });

  it('is the same when its SQL is run by hand', async () => {
    await inMigration(removeWriteTrigger);
    const options = { primaryKey: ['id'] };
    for (const sql of installWriteTriggerSql(dialect, 'invoice', options)) await outsider.run(sql);
    for (const sql of byHand()) await expect(outsider.run(sql)).rejects.toThrow(SENTENCE);
    for (const sql of removeWriteTriggerSql(dialect, 'invoice')) await outsider.run(sql);
    await outsider.run(`UPDATE invoice SET paid = 9 WHERE id = '${id}'`);
    expect(await row()).toMatchObject({ paid: 9 });
  });
});
