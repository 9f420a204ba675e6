import { QueryFailedError } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';

describeOnEachDatabase('A guarded write', (start) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let lease: Lease;
  let lastId = 0;
  let id: string;
  const statements: string[] = [];

  beforeAll(async () => {
    owners = await Owners.on(await start());
    owner = await owners.add();
    successor = await owners.add();
    owner.dataSource.subscribers.push({ beforeQuery: ({ query }) => void statements.push(query) });
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id);
    lease = await owners.hold(owner, `invoice:${id}`);
    statements.length = 0;
  });
  afterEach(() => lease.release());
  afterAll(() => owners.stop());

  const invoices = () => owner.repository(Invoice);
  const read = () => invoices().findOneOrFail({ where: { id } });
  const line = () => owner.repository(InvoiceLine).findOneByOrFail({ invoice: { id } });
  const isOf = (known: string) => (row: unknown) => (row as Invoice).id === known;
  const token = async (): Promise<unknown> =>
    (await invoices().createQueryBuilder('i').addSelect('i.lockToken').where({ id }).getOneOrFail())
      .lockToken;

  it('leaves the entity as TypeORM would: no function, no token that was not there, plain JSON', async () => {
    const invoice = await read();
    const shape = Object.keys(invoice);
    await lease.run(() => invoices().save(Object.assign(invoice, { status: 'SETTLED' })));
    expect(Object.keys(invoice)).toEqual(shape);
    expect(invoice.lockToken).toBeUndefined();
    expect(Object.values(invoice).some((value) => typeof value === 'function')).toBe(false);
    expect(JSON.parse(JSON.stringify(invoice))).toMatchObject({ id, status: 'SETTLED', version: 2 });
  });

  it('leaves the entity as it was when the database refuses it, and when somebody else does', async () => {
    const invoice = Object.assign(await read(), { status: 'SETTLED' });
    const before = { ...invoice };
    await owners.takeOver(lease, successor);
    await expect(lease.run(() => invoices().save(invoice))).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect({ ...invoice }).toEqual(before);
    await expect(invoices().save(invoice)).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    expect({ ...invoice }).toEqual(before);
  });

  it('shows the new token on an entity that showed one, as a number (C040)', async () => {
    await lease.run(() => invoices().update({ id }, { status: 'OPEN' }));
    const invoice = await invoices()
      .createQueryBuilder('i')
      .addSelect('i.lockToken')
      .where({ id })
      .getOneOrFail();
    expect(invoice.lockToken).toBe(lease.token);
    await lease.release();
    const next = await owners.hold(owner, `invoice:${id}`);
    await next.run(() => invoices().save(Object.assign(invoice, { status: 'SETTLED' })));
    expect(invoice.lockToken).toBe(next.token);
    expect(await token()).toBe(next.token);
    await next.release();
  });

  it('ignores what user code puts into the token column', async () => {
    const invoice = Object.assign(await read(), { lockToken: 2 ** 50 });
    await lease.run(async () => {
      await invoices().save(invoice);
      expect(statements.filter((sql) => sql.startsWith('UPDATE'))).toEqual([]);
      await invoices().save(Object.assign(invoice, { status: 'SETTLED' }));
      await invoices().update({ id }, { paid: 1, lockToken: 2 ** 51 });
      await invoices()
        .save(invoices().create({ id: `${id}-other`, lockToken: 7 }))
        .catch(() => undefined);
    });
    expect(await token()).toBe(lease.token);
    expect(invoice.lockToken).toBe(lease.token);
  });

  it('raises the version once (C074)', async () => {
    const invoice = await read();
    await lease.run(async () => {
      await invoices().save(Object.assign(invoice, { status: 'A' }));
      expect(invoice.version).toBe(2);
      await invoices().update({ id }, { status: 'B' });
      expect((await read()).version).toBe(3);
      await invoices().softRemove(invoice);
      expect(invoice.version).toBe(4);
      await invoices().recover(invoice);
      expect(invoice.version).toBe(5);
    });
    expect((await read()).version).toBe(5);
  });

  it('passes when it changes nothing (C109)', async () => {
    await lease.run(async () => {
      const results = [1, 2].map(() => invoices().update({ id }, { status: 'READY' }));
      expect((await Promise.all(results)).map(({ affected }) => affected)).toEqual([1, 1]);
    });
  });

  it('keeps one constant usable for several updates under several locks at once', async () => {
    await seed(owner, `${id}-b`);
    const other = await owners.hold(owner, `invoice:${id}-b`);
    const settled = { status: 'SETTLED' };
    await Promise.all([
      lease.run(() => invoices().update({ id }, settled)),
      other.run(() => invoices().update({ id: `${id}-b` }, settled)),
    ]);
    expect(settled).toEqual({ status: 'SETTLED' });
    expect(await invoices().countBy({ status: 'SETTLED' })).toBe(2);
    await other.release();
  });

  it('reaches the rows of all locks that are held, each under its own token, and no other row', async () => {
    await seed(owner, `${id}-b`, `${id}-c`);
    const other = await owners.hold(owner, `invoice:${id}-b`);
    const both = <T>(work: () => Promise<T>) => lease.run(() => other.run(work));
    await both(() => invoices().update([{ id }, { id: `${id}-b` }] as never, { status: 'BOTH' }));
    const rows = await invoices().createQueryBuilder('i').addSelect('i.lockToken').orderBy('i.id').getMany();
    expect(rows.map(({ lockToken }) => lockToken)).toEqual([lease.token, other.token, 0]);
    const before = await contents(owner);
    await expect(both(() => invoices().updateAll({ status: 'ALL' }))).rejects.toMatchObject({
      code: 'FENCED_OUT',
    });
    expect(await contents(owner)).toEqual(before);
    await other.release();
  });

  it('finds the lock of a row whose key TypeORM has not loaded', async () => {
    const { id: lineId } = await owner.repository(InvoiceLine).findOneByOrFail({ invoice: { id } });
    await lease.run(() => owner.repository(InvoiceLine).save({ id: lineId, text: 'changed' }));
    const line = await owner.repository(InvoiceLine).findOneByOrFail({ id: lineId });
    expect(line.text).toBe('changed');
    await lease.run(() => owner.repository(InvoiceLine).remove(line));
    expect(await owner.repository(InvoiceLine).countBy({ invoice: { id } })).toBe(0);
  });

  it('refuses to move a row to another lock, by save() and by update()', async () => {
    await seed(owner, `${id}-b`);
    const line = await owner.repository(InvoiceLine).findOneByOrFail({ invoice: { id } });
    const moved = { invoice: { id: `${id}-b` } };
    const before = await contents(owner);
    await lease.run(async () => {
      await expect(owner.repository(InvoiceLine).save({ ...line, ...moved })).rejects.toThrow(
        /move the row to another lock/,
      );
      await expect(owner.repository(InvoiceLine).update({ id: line.id }, moved)).rejects.toThrow(
        /another lock/,
      );
      await expect(invoices().update({ id }, { id: 'elsewhere' })).rejects.toThrow(/another lock/);
    });
    expect(await contents(owner)).toEqual(before);
  });

  it('passes an insert whose key the database makes, without a lock', async () => {
    const before = await owner.repository(InvoiceLine).count();
    await lease.run(() => owner.repository(InvoiceLine).insert({ invoice: { id }, text: 'second' }));
    expect(await owner.repository(InvoiceLine).count()).toBe(before + 1);
  });

  it('keeps its guard where a value in SQL ends in a comment, which takes the criteria away', async () => {
    await seed(owner, 'another');
    const write = () =>
      lease.run(() =>
        invoices()
          .createQueryBuilder()
          .update()
          .set({ paid: () => '1 -- once' })
          .execute(),
      );
    const before = await contents(owner);
    await expect(write()).rejects.toMatchObject({ code: 'FENCED_OUT' }); // the row of another lock
    await unfenced('no other row', async () => {
      await owner.dataSource.query(`DELETE FROM invoice_line WHERE text = 'line of another'`);
      await invoices().delete({ id: 'another' });
    });
    await owners.takeOver(lease, successor);
    await expect(write()).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect(await contents(owner)).toMatchObject({ invoice: [before['invoice']?.find(isOf(id))] });
  });

  it('is guarded on query runners that come from the driver itself', async () => {
    const row = await line();
    const { driver } = owner.dataSource;
    const runner = driver.createQueryRunner('master');
    Object.assign(runner, { manager: owner.dataSource.createEntityManager(runner) });
    const before = await contents(owner);
    await expect(runner.query(`DELETE FROM invoice_line`)).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    await owners.takeOver(lease, successor);
    await expect(lease.run(() => runner.manager.remove(row))).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await runner.release();
    expect(await contents(owner)).toEqual(before);
  });

  it('refuses to bring a removed row back without its lock, and says so', async () => {
    await lease.run(async () => {
      await owner
        .repository(InvoiceLine)
        .remove(await owner.repository(InvoiceLine).findBy({ invoice: { id } }));
      await invoices().remove(await read());
    });
    await expect(invoices().insert({ id })).rejects.toMatchObject({
      code: 'UNFENCED_WRITE',
      message: expect.stringContaining('has been locked before') as string,
    });
    expect(await invoices().countBy({ id })).toBe(0);
  });

  it('leaves errors of other columns to the user', async () => {
    await lease.run(async () => {
      const broken = invoices().update({ id }, { status: null as never });
      await expect(broken).rejects.toBeInstanceOf(QueryFailedError);
      const line = await owner.repository(InvoiceLine).findOneByOrFail({ invoice: { id } });
      await expect(
        owner.repository(InvoiceLine).save({ ...line, text: null as never }),
      ).rejects.toBeInstanceOf(QueryFailedError);
    });
    await expect(owner.dataSource.query(`INSERT INTO label (name) VALUES (NULL)`)).rejects.toBeInstanceOf(
      QueryFailedError,
    );
  });

  it('costs no statement more for save(), insert() and update(), and one more for each removed row', async () => {
    const plain = await owners.add({ plain: true });
    const counted: string[] = [];
    plain.dataSource.subscribers.push({ beforeQuery: ({ query }) => void counted.push(query) });
    await seed(owner, `${id}-p`);
    const run = async (by: Owner, row: string): Promise<void> => {
      const repository = by.repository(Invoice);
      const invoice = await repository.findOneByOrFail({ id: row });
      await repository.save(Object.assign(invoice, { status: 'SETTLED' }));
      await repository.update({ id: row }, { paid: 1 });
      await repository.increment({ id: row }, 'paid', 1);
      await repository.softRemove(invoice);
    };
    statements.length = 0;
    await lease.run(() => run(owner, id));
    await run(plain, `${id}-p`);
    expect(statements).toHaveLength(counted.length + 1);
    const lines = [1, 2, 3].map((n) => ({ invoice: { id }, text: `${n}` }));
    statements.length = 0;
    counted.length = 0;
    await lease.run(() => owner.repository(InvoiceLine).save(lines));
    await plain.repository(InvoiceLine).save(lines.map(({ text }) => ({ invoice: { id: `${id}-p` }, text })));
    expect(statements.length).toBeLessThanOrEqual(counted.length);
  });

  it('tells listeners of refused and of unfenced writes, with the lock and the entity', async () => {
    await owners.takeOver(lease, successor);
    owner.events.length = 0;
    await lease.run(() => invoices().update({ id }, { paid: 1 })).catch(() => undefined);
    await invoices()
      .update({ id }, { paid: 1 })
      .catch(() => undefined);
    expect(owner.events).toEqual([
      {
        type: 'stale-write-refused',
        key: `invoice:${id}`,
        template: lease.template,
        store: 'default',
        token: lease.token,
        entity: 'Invoice',
      },
      {
        type: 'unfenced-write',
        key: 'invoice:<id>',
        template: 'invoice:<id>',
        store: 'none',
        entity: 'Invoice',
        path: 'update()',
        refused: true,
      },
    ]);
  });

  it('demands that a token handed over agrees with the one held', async () => {
    const save = (expectedLockToken: unknown) =>
      lease.run(() => invoices().save({ id, status: 'SETTLED' }, { data: { expectedLockToken } }));
    await expect(save(lease.token - 1)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    for (const nonsense of [undefined, null, '41', Number.NaN, 0, -1, 1.5, 2 ** 53]) {
      await expect(save(nonsense)).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    }
    await save(lease.token);
    expect((await read()).status).toBe('SETTLED');
  });

  it('does not mix up tokens that are handed over side by side', async () => {
    await seed(owner, `${id}-b`);
    const other = await owners.hold(owner, `invoice:${id}-b`);
    const save = (row: string, expectedLockToken: number) =>
      invoices().save({ id: row, status: `by ${expectedLockToken}` }, { data: { expectedLockToken } });
    const outcomes = await Promise.allSettled([
      save(id, lease.token),
      save(`${id}-b`, lease.token),
      save(`${id}-b`, other.token),
      save(id, other.token),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'rejected']);
    await expect(invoices().save({ id, status: 'LATER' })).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    await other.release();
  });
});
