import type { EntityManager } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { fenced, readAndFence } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';

/** Every kind of guarded write, through the manager of a transaction. */
const guardedWrites: Readonly<Record<string, (manager: EntityManager, id: string) => Promise<unknown>>> = {
  save: (m, id) => m.save(Invoice, { id, status: 'LATE' }),
  'save without changes': (m, id) => m.save(Invoice, { id, status: 'READY' }),
  'save of a new row': (m, id) => m.save(InvoiceLine, { invoice: { id }, text: 'late' }),
  update: (m, id) => m.update(Invoice, { id }, { status: 'LATE' }),
  insert: (m, id) => m.insert(InvoiceLine, { invoice: { id }, text: 'late' }),
  remove: async (m, id) => m.remove(await m.findBy(InvoiceLine, { invoice: { id } })),
  softRemove: async (m, id) => m.softRemove(await m.findBy(Invoice, { id })),
  'fenced delete': (m, id) => fenced(m.getRepository(InvoiceLine)).delete({ invoice: { id } }),
  'fenced softDelete': (m, id) => fenced(m.getRepository(Invoice)).softDelete(id),
  'fenced upsert': (m, id) => fenced(m.getRepository(Invoice)).upsert({ id, status: 'LATE' }, ['id']),
  readAndFence: (_m, id) => readAndFence(Invoice, id),
};

describeOnEachDatabase('A guarded write, exactly', (start) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let id: string;
  let lease: Lease;
  let lastId = 0;
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
    await seed(owner, id, `${id}-b`);
    lease = await owners.hold(owner, `invoice:${id}`);
    statements.length = 0;
  });
  afterEach(() => lease.release());
  afterAll(() => owners.stop());

  const rows = () => owner.repository(Invoice);

  it('says how many rows it affected: none, one, two, and rows that had the values already (C109)', async () => {
    const other = await owners.hold(owner, `invoice:${id}-b`);
    await lease.run(() =>
      other.run(async () => {
        const affected = async (status: string, ...ids: string[]) =>
          (
            await rows().update(
              ids.map((row) => ({ id: row })),
              { status },
            )
          ).affected;
        expect(await affected('A', 'none')).toBe(0);
        expect(await affected('A', id)).toBe(1);
        expect(await affected('A', id, `${id}-b`, 'none')).toBe(2);
        expect(await affected('A', id, `${id}-b`)).toBe(2);
        expect((await rows().increment({ id }, 'paid', 0)).affected).toBe(1);
        expect((await fenced(rows()).softDelete([id, `${id}-b`])).affected).toBe(2);
        expect((await fenced(rows()).softDelete(['none'])).affected).toBe(0);
        expect((await fenced(rows()).restore([id])).affected).toBe(1);
      }),
    );
    await other.release();
  });

  it('costs as many statements as without a guard, and a save() without changes one more', async () => {
    const count = async (work: () => Promise<unknown>): Promise<number> => {
      statements.length = 0;
      await work();
      return statements.length;
    };
    const plain = await owners.add({ plain: true });
    plain.dataSource.subscribers.push({ beforeQuery: ({ query }) => void statements.push(query) });
    const writes: ((by: Owner, row: string) => Promise<unknown>)[] = [
      (by, row) => by.repository(Invoice).update({ id: row }, { status: 'A' }),
      (by, row) => by.repository(Invoice).increment({ id: row }, 'paid', 1),
      (by, row) => by.repository(Invoice).save({ id: row, status: 'B' }),
      (by, row) => by.repository(InvoiceLine).save({ invoice: { id: row }, text: 'more' }),
      (by, row) => by.repository(InvoiceLine).insert({ invoice: { id: row }, text: 'more' }),
    ];
    for (const write of writes) {
      const without = await count(() => write(plain, `${id}-b`));
      expect(await count(() => lease.run(() => write(owner, id)))).toBeLessThanOrEqual(without);
    }
    const same = (by: Owner, row: string) => by.repository(Invoice).save({ id: row, status: 'B' });
    const without = await count(() => same(plain, `${id}-b`));
    expect(await count(() => lease.run(() => same(owner, id)))).toBe(without + 1);
  });

  it('gives tokens as numbers, however they are read (C040)', async () => {
    await lease.run(() => rows().update({ id }, { status: 'A' }));
    const select = { id: true, lockToken: true } as const;
    const read = [
      await rows().findOneOrFail({ where: { id }, select }),
      ...(await rows().find({ where: { id }, select })),
      await rows().createQueryBuilder('i').addSelect('i.lockToken').where({ id }).getOneOrFail(),
      (
        await owner.repository(InvoiceLine).findOneOrFail({
          where: { invoice: { id } },
          relations: { invoice: true },
          select: { id: true, invoice: select },
        })
      ).invoice,
    ];
    for (const { lockToken } of read) expect(lockToken).toBe(lease.token);
  });

  for (const [name, write] of Object.entries(guardedWrites)) {
    it(`dooms its transaction when it is refused, also when user code catches it: ${name}`, async () => {
      const current = await owners.takeOver(lease, successor);
      const before = await contents(successor);
      const codes: unknown[] = [];
      const note = (error: { code?: unknown }): void => void codes.push(error.code);
      const transaction = lease.run(() =>
        owner.dataSource.transaction(async (manager) => {
          await manager.query(`INSERT INTO label (name) VALUES ('${id}')`);
          await write(manager, id).catch(note);
          await manager.query(`INSERT INTO label (name) VALUES ('${id}-again')`).catch(note);
        }),
      );
      await expect(transaction).rejects.toMatchObject({ code: 'FENCED_OUT' });
      expect(codes).toEqual(['FENCED_OUT', 'FENCED_OUT']);
      expect(await contents(successor)).toEqual(before);
      await current.release();
      await expect(owner.dataSource.query('SELECT 1')).resolves.toBeDefined();
    });
  }

  it("hands on the user's own error, from a subscriber, a constraint or the work itself", async () => {
    const mine = new Error('mine');
    const subscriber = {
      listenTo: () => Invoice,
      beforeUpdate: () => {
        throw mine;
      },
    };
    owner.dataSource.subscribers.push(subscriber);
    await expect(lease.run(() => rows().save({ id, status: 'A' }))).rejects.toBe(mine);
    await expect(lease.run(() => rows().update({ id }, { status: 'A' }))).rejects.toBe(mine);
    owner.dataSource.subscribers.splice(owner.dataSource.subscribers.indexOf(subscriber), 1);
    await lease.run(async () => {
      await expect(rows().insert({ id })).rejects.toMatchObject({ name: 'QueryFailedError' });
      await expect(fenced(rows()).delete(id)).rejects.toMatchObject({ name: 'QueryFailedError' });
      const thrown = owner.dataSource.transaction(async (manager) => {
        await manager.save(Invoice, { id, status: 'A' });
        throw mine;
      });
      await expect(thrown).rejects.toBe(mine);
    });
    expect(await rows().findOneByOrFail({ id })).toMatchObject({ status: 'READY', version: 1 });
  });
});
