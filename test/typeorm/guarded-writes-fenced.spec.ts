import { Column, Entity, PrimaryColumn, Raw, VersionColumn } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { FencedBy, fenced, LockTokenColumn, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';

@Entity()
@FencedBy('product:<id>')
class Product {
  @PrimaryColumn({ type: 'int' })
  id!: number;

  @Column({ type: 'varchar', length: 20, unique: true })
  sku!: string;

  @Column({ type: 'int', default: 0 })
  stock!: number;

  @VersionColumn()
  version!: number;

  @LockTokenColumn()
  lockToken!: number;
}

describeOnEachDatabase('A statement of fenced(repository)', (start, dialect) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let id: string;
  let lease: Lease;
  let lastId = 0;
  const statements: string[] = [];

  beforeAll(async () => {
    owners = await Owners.on(await start(), [Invoice, InvoiceLine, Label, Product]);
    owner = await owners.add();
    successor = await owners.add();
    owner.dataSource.subscribers.push({ beforeQuery: ({ query }) => void statements.push(query) });
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id, `${id}-b`, `${id}-c`);
    lease = await owners.hold(owner, `invoice:${id}`);
    statements.length = 0;
  });
  afterEach(() => lease.release());
  afterAll(() => owners.stop());

  const invoices = () => fenced(owner.repository(Invoice));
  const lines = () => fenced(owner.repository(InvoiceLine));
  const products = () => fenced(owner.repository(Product));
  const read = (row = id) =>
    owner
      .repository(Invoice)
      .createQueryBuilder('i')
      .addSelect('i.lockToken')
      .withDeleted()
      .where({ id: row })
      .getOne();

  async function expectRefused(code: string, write: () => Promise<unknown>, of = owner): Promise<void> {
    const before = await contents(of);
    await expect(write()).rejects.toMatchObject({ code });
    expect(await contents(of)).toEqual(before);
  }

  it('returns what TypeORM returns, and is one statement', async () => {
    await lease.run(async () => {
      const { affected } = await lines().delete({ invoice: { id } });
      expect(affected).toBe(1);
      expect((await invoices().softDelete(id)).affected).toBe(1);
      expect((await invoices().restore([id])).affected).toBe(1);
      expect((await invoices().softDelete({ id, status: 'NO SUCH' })).affected).toBe(0);
      expect((await invoices().delete({ id, status: 'NO SUCH' })).affected).toBe(0);
      expect(statements).toHaveLength(5);
      const { identifiers, generatedMaps } = await invoices().upsert({ id, status: 'UP' }, ['id']);
      expect(identifiers).toEqual([{ id }]);
      expect(generatedMaps).toHaveLength(1);
      expect(statements.filter((sql) => /^(?:INSERT|UPDATE|DELETE)/.test(sql))).toHaveLength(6);
      expect((await invoices().delete([id])).affected).toBe(1);
    });
    expect(await owner.repository(Invoice).find({ select: { id: true }, order: { id: 'ASC' } })).toEqual([
      { id: `${id}-b` },
      { id: `${id}-c` },
    ]);
  });

  it('writes the token, and is one version step (C074)', async () => {
    await lease.run(async () => {
      await invoices().softDelete({ id });
      expect(await read()).toMatchObject({ version: 2, lockToken: lease.token });
      await invoices().restore({ id });
      expect(await read()).toMatchObject({ version: 3, deletedAt: null });
      await invoices().upsert({ id, status: 'UP' }, ['id']);
      expect(await read()).toMatchObject({ version: 4, status: 'UP', paid: 0, address: { city: 'Rome' } });
      await invoices().upsert({ id, status: 'UP' }, ['id']);
      expect(await read()).toMatchObject({ version: 5, lockToken: lease.token });
    });
  });

  it('is refused as a whole when its criteria reach a row of another lock', async () => {
    const all = { status: 'READY' };
    // With lines, MySQL and MariaDB would refuse to delete the first invoice, and never come to the second.
    await unfenced('no lines', () => owner.repository(InvoiceLine).clear());
    await expectRefused('FENCED_OUT', () => lease.run(() => invoices().delete(all)));
    await expectRefused('FENCED_OUT', () => lease.run(() => invoices().delete([id, `${id}-b`])));
    await expectRefused('FENCED_OUT', () => lease.run(() => invoices().softDelete(all)));
    await unfenced('soft-removed', () => owner.repository(Invoice).softDelete(all));
    await expectRefused('FENCED_OUT', () => lease.run(() => invoices().restore(all)));
    await expectRefused('UNFENCED_WRITE', () =>
      lease.run(() => invoices().upsert([{ id }, { id: `${id}-b` }], ['id'])),
    );
  });

  it('reaches the rows of all locks held, each under its own token', async () => {
    const other = await owners.hold(owner, `invoice:${id}-b`);
    await lease.run(() =>
      other.run(async () => {
        const up = [{ id }, { id: `${id}-b` }].map((row) => ({ ...row, status: 'UP' }));
        await invoices().upsert(up, { conflictPaths: { id: true } });
        expect((await read())?.lockToken).toBe(lease.token);
        expect((await read(`${id}-b`))?.lockToken).toBe(other.token);
        expect((await invoices().softDelete({ status: 'UP' })).affected).toBe(2);
        expect(
          (await lines().delete([{ invoice: { id } }, { invoice: { id: `${id}-b` } }] as never)).affected,
        ).toBe(2);
        expect((await invoices().delete([id, `${id}-b`])).affected).toBe(2);
      }),
    );
    await other.release();
  });

  it('does not mind rows of other locks that its criteria do not reach', async () => {
    await lease.run(() => owner.repository(Invoice).update({ id }, { status: 'DRAFT' }));
    const drafts = { status: 'DRAFT' };
    expect((await lease.run(() => invoices().softDelete(drafts))).affected).toBe(1);
    expect((await lease.run(() => invoices().restore(drafts))).affected).toBe(1);
    await lease.run(() => lines().delete({ invoice: { id } }));
    expect((await lease.run(() => invoices().delete(drafts))).affected).toBe(1);
  });

  it('does not mind them either where the database looks at the guard before it looks at the criteria', async () => {
    await owner.repository(Label).save({ name: 'DRAFT' });
    await lease.run(async () => {
      await lines().delete({ invoice: { id } });
      await owner.repository(Invoice).update({ id }, { status: 'DRAFT' });
      const costly = Raw((column) => `(SELECT COUNT(*) FROM label WHERE name = ${column}) > 0`);
      expect((await invoices().delete({ status: costly as never })).affected).toBe(1);
    });
    expect(await owner.repository(Invoice).count()).toBe(2);
  });

  it('is refused once there is a successor, whether that has written or not', async () => {
    const current = await owners.takeOver(lease, successor);
    const all: (() => Promise<unknown>)[] = [
      () => lines().delete({ invoice: { id } }),
      () => invoices().softDelete(id),
      () => invoices().upsert({ id, status: 'UP' }, ['id']),
      () =>
        invoices().upsert({ id, status: 'UP' }, { conflictPaths: ['id'], skipUpdateIfNoValuesChanged: true }),
    ];
    for (const write of all) await expectRefused('FENCED_OUT', () => lease.run(write));
    await current.run(() => successor.repository(Invoice).update({ id }, { paid: 99 }));
    for (const write of all) await expectRefused('FENCED_OUT', () => lease.run(write));
    await current.run(() => fenced(successor.repository(Invoice)).softDelete(id));
    await expectRefused('FENCED_OUT', () => lease.run(() => invoices().restore(id)));
    await current.release();
  });

  it('does not bring back a row that the successor has removed', async () => {
    const current = await owners.takeOver(lease, successor);
    await current.run(async () => {
      await fenced(successor.repository(InvoiceLine)).delete({ invoice: { id } });
      await fenced(successor.repository(Invoice)).delete(id);
    });
    await expectRefused('FENCED_OUT', () => lease.run(() => invoices().upsert({ id }, ['id'])));
    await current.release();
  });

  it('does not turn an upsert of one row into a change of the row of another lock', async () => {
    await unfenced('rows', () =>
      owner.repository(Product).insert([
        { id: 1, sku: 'a' },
        { id: 2, sku: 'b' },
      ]),
    );
    const upsert = (row: Partial<Product>) => products().upsert(row, ['sku']);
    await owner.locks.withLock('product:1', async () => {
      // MySQL and MariaDB take any unique key, so here they find row 1, which may not get the sku of row 2.
      const code = dialect === 'mysql' ? 'ER_DUP_ENTRY' : 'FENCED_OUT';
      await expectRefused(code, () => upsert({ id: 1, sku: 'b', stock: 5 }));
      await expectRefused('UNFENCED_WRITE', () => upsert({ id: 2, sku: 'a', stock: 5 }));
      await expectRefused('UNFENCED_WRITE', () => upsert({ sku: 'a', stock: 5 }));
      await upsert({ id: 1, sku: 'a', stock: 5 });
    });
    await owner.locks.withLock('product:3', () =>
      expectRefused('FENCED_OUT', () => upsert({ id: 3, sku: 'b', stock: 5 })),
    );
    expect(await owner.repository(Product).findOneByOrFail({ id: 1 })).toMatchObject({
      stock: 5,
      version: 2,
    });
  });

  it('is part of the transaction whose repository it was given, and dooms it', async () => {
    const inTransaction = (work: (rows: ReturnType<typeof invoices>) => Promise<unknown>) =>
      lease.run(() => owner.dataSource.transaction((m) => work(fenced(m.getRepository(Invoice)))));
    const before = await contents(owner);
    const thrown = new Error('the user changed his mind');
    const undone = inTransaction(async (rows) => {
      await rows.softDelete(id);
      await rows.upsert({ id, status: 'UP' }, ['id']);
      throw thrown;
    });
    await expect(undone).rejects.toBe(thrown);
    expect(await contents(owner)).toEqual(before);
    const current = await owners.takeOver(lease, successor);
    for (const write of ['delete', 'softDelete'] as const) {
      const swallowed = inTransaction(async (rows) => {
        await rows[write](id).catch(() => undefined);
      });
      await expect(swallowed).rejects.toMatchObject({ code: 'FENCED_OUT' });
    }
    expect(await contents(owner)).toEqual(before);
    await current.release();
  });

  it('is heard by subscribers, as that of the repository', async () => {
    const heard: string[] = [];
    const subscriber = {
      beforeRemove: () => void heard.push('beforeRemove'),
      afterSoftRemove: () => void heard.push('afterSoftRemove'),
      beforeInsert: () => void heard.push('beforeInsert'),
    };
    owner.dataSource.subscribers.push(subscriber);
    await lease.run(async () => {
      await lines().delete({ invoice: { id } });
      await invoices().softDelete(id);
      await invoices().upsert({ id }, ['id']);
    });
    owner.dataSource.subscribers.splice(owner.dataSource.subscribers.indexOf(subscriber), 1);
    expect(heard).toEqual(['beforeRemove', 'afterSoftRemove', 'beforeInsert']);
  });

  it('without a lock is not sent, and says what to do', async () => {
    for (const method of ['delete', 'softDelete', 'restore'] as const) {
      await expect(invoices()[method](id)).rejects.toMatchObject({
        code: 'UNFENCED_WRITE',
        message: expect.stringContaining(`fenced(repository).${method}() carries no token`) as string,
      });
    }
    await expect(invoices().upsert({ id }, ['id'])).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    expect(statements).toEqual([]);
    await unfenced('a repair', () => lines().delete({ invoice: { id } }));
    await unfenced('a repair', () => invoices().upsert({ id, status: 'REPAIRED' }, ['id']));
    expect((await read())?.status).toBe('REPAIRED');
  });

  it('leaves errors of TypeORM and of other columns to the user', async () => {
    await lease.run(async () => {
      await expect(invoices().delete({})).rejects.toThrow(/[Ee]mpty criteria/);
      await expect(invoices().upsert({ id, status: null as never }, ['id'])).rejects.toThrow(/null/i);
      await expect(lines().softDelete({ id: 1 })).rejects.toThrow(/[Dd]elete date/);
    });
  });

  it('is for fenced entities of guarded DataSources', async () => {
    const plain = await owners.add({ plain: true });
    for (const repository of [owner.repository(Label), plain.repository(Invoice)]) {
      await expect(fenced(repository as never).delete('x')).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining('Nothing was sent') as string,
      });
    }
  });

  it('is what the methods of the repository advise when they are refused', async () => {
    const repository = owner.repository(Invoice);
    const refused: Record<string, () => Promise<unknown>> = {
      delete: () => repository.delete(id),
      softDelete: () => repository.softDelete(id),
      restore: () => repository.restore(id),
      upsert: () => repository.upsert({ id }, ['id']),
    };
    for (const [method, write] of Object.entries(refused)) {
      await expect(lease.run(write)).rejects.toThrow(`fenced(repository).${method}()`);
    }
    await expect(lease.run(() => owner.repository(InvoiceLine).clear())).rejects.toThrow(
      /fenced\(repository\)/,
    );
  });
});
