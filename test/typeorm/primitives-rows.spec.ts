import { In, type DataSource } from 'typeorm';

import { insertOnce, transition, withRowLock } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { connectAll, everywhere, Order, Seat } from './primitives-model.js';

const ROUNDS = 200;

describeOnEachDatabase('Primitives for one row', (start, dialect) => {
  let database: TestDatabase;
  let sources: DataSource[];
  let source: DataSource;
  let other: DataSource;
  let lastReference = 0;

  beforeAll(async () => {
    database = await start();
    sources = await connectAll(database, 3);
    [source, other] = sources as [DataSource, DataSource];
  });
  afterAll(async () => {
    for (const each of sources) await each.destroy();
    await database.stop();
  });

  const orders = (of = source) => of.getRepository(Order);
  const newReference = (): string => `order-${++lastReference}`;
  const newOrder = async (): Promise<number> => (await orders().save({ reference: newReference() })).id;
  const amountOf = async (id: number): Promise<number> => (await orders().findOneByOrFail({ id })).amount;

  describe('transition()', () => {
    it('lets exactly one of all callers win, in each of hundreds of rounds', async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const id = await newOrder();
        const won = await everywhere(sources, 1, (each) => transition(orders(each), id, 'READY', 'SETTLED'));
        expect(won.filter(Boolean)).toHaveLength(1);
      }
    });

    it('changes other columns in the same step, and nothing when it is too late', async () => {
      const id = await newOrder();
      expect(
        await transition(orders(), id, ['READY', 'OPEN'], 'SETTLED', { amount: () => 'amount + 5' }),
      ).toBe(true);
      expect(await transition(orders(), id, ['READY', 'OPEN'], 'SETTLED', { amount: 99 })).toBe(false);
      expect(await transition(orders(), id + 1_000_000, 'READY', 'SETTLED')).toBe(false);
      expect(await orders().findOneByOrFail({ id })).toMatchObject({ status: 'SETTLED', amount: 5 });
    });

    it('takes keys of several columns, another property, and null', async () => {
      const seats = source.getRepository(Seat);
      await seats.save({ flight: 'LX1', number: 7 });
      const seat = { flight: 'LX1', number: 7 };
      expect(await transition(seats, seat, null, 'TAKEN')).toBe(true);
      expect(await transition(seats, seat, null, 'TAKEN')).toBe(false);
      const id = await newOrder();
      expect(await transition(orders(), id, 0, 1, {}, { property: 'amount' })).toBe(true);
      expect(await amountOf(id)).toBe(1);
    });

    it('refuses an id that does not name one row: TypeORM would write all that a part of it fits', async () => {
      const seats = source.getRepository(Seat);
      const flight = 'LX3';
      await seats.save([1, 2].map((number) => ({ flight, number, status: 'FREE' })));
      const refused = { code: 'LOCK_CONFIG_INVALID' };
      const worked: unknown[] = [];
      for (const id of [
        {},
        [],
        null,
        undefined,
        { flight },
        { status: 'FREE' },
        { flight, number: In([1, 2]) },
      ]) {
        await expect(transition(seats, id, 'FREE', 'TAKEN')).rejects.toMatchObject(refused);
        const locked = withRowLock(seats, id, (row) => worked.push(row));
        await expect(locked).rejects.toMatchObject(refused);
      }
      expect(worked).toEqual([]);
      expect(await seats.countBy({ flight, status: 'FREE' })).toBe(2);
    });

    it('refuses a status that is undefined', async () => {
      const id = await newOrder();
      const step = (from: string, to: string) => transition(orders(), id, from, to, { amount: 7 });
      await expect(step('READY', undefined as never)).rejects.toThrow(/undefined/);
      await expect(step(undefined as never, 'SETTLED')).rejects.toThrow(/undefined/);
      expect(await amountOf(id)).toBe(0);
    });

    it('refuses a step that any number of callers would win', async () => {
      for (const step of [
        () => transition(orders(), 1, 'READY', 'READY'),
        () => transition(orders(), 1, [], 'READY'),
        () => transition(orders(), 1, 'READY', 'DONE', { status: 'X' }),
        () => transition(orders(), 1, 'a' as never, 'b' as never, {}, { property: 'nothing' }),
      ])
        await expect(step()).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    });
  });

  describe('insertOnce()', () => {
    it('lets exactly one of all callers insert, and gives all its row (C062)', async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const reference = newReference();
        const results = await everywhere(sources, 1, (each) =>
          insertOnce(orders(each), { reference, amount: round }, { key: ['reference'] }),
        );
        expect(results.filter(({ inserted }) => inserted)).toHaveLength(1);
        expect(new Set(results.map(({ row }) => row.id)).size).toBe(1);
        expect(results.every(({ row }) => row.amount === round && row.status === 'READY')).toBe(true);
      }
    });

    it('throws what other keys and constraints say', async () => {
      const [reference, taken] = [newReference(), newReference()];
      await orders().save({ reference: taken, invoiceNumber: taken });
      const same = insertOnce(orders(), { reference, invoiceNumber: taken }, { key: ['reference'] });
      await expect(same).rejects.toMatchObject({ name: 'QueryFailedError' });
      const nothing = insertOnce(orders(), { reference, status: null as never }, { key: ['reference'] });
      await expect(nothing).rejects.toMatchObject({ name: 'QueryFailedError' });
      expect(await orders().countBy({ reference })).toBe(0);
    });

    it('lets the transaction around it go on', async () => {
      const reference = newReference();
      const { id } = await orders().save({ reference });
      await source.transaction(async (manager) => {
        const found = await insertOnce(manager.getRepository(Order), { reference }, { key: ['reference'] });
        expect(found).toMatchObject({ inserted: false, row: { id } });
        await manager.update(Order, { id }, { amount: 3 });
      });
      expect(await amountOf(id)).toBe(3);
    });

    it('is decided by the primary key where no other is named, and finds what was removed softly', async () => {
      const seat = { flight: 'LX2', number: 1 };
      const seats = source.getRepository(Seat);
      expect(await insertOnce(seats, { ...seat, status: 'MINE' })).toMatchObject({ inserted: true });
      expect(await insertOnce(seats, { ...seat, status: 'YOURS' })).toMatchObject({
        inserted: false,
        row: { status: 'MINE' },
      });
      const reference = newReference();
      await orders().save({ reference });
      await orders().softDelete({ reference });
      const found = await insertOnce(orders(), { reference }, { key: ['reference'] });
      expect(found).toMatchObject({ inserted: false, row: { deletedAt: expect.any(Date) } });
    });

    it('refuses values without the key', async () => {
      await expect(insertOnce(orders(), { reference: newReference() })).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining('the values have no "id"'),
      });
      await expect(insertOnce(orders(), { reference: newReference() }, { key: [] })).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
      });
    });
  });

  if (dialect === 'sqlite') return;

  /** Keeps the row until the returned function is called. */
  const keep = async (id: number): Promise<() => Promise<void>> => {
    const runner = other.createQueryRunner();
    await runner.startTransaction();
    await runner.query(`SELECT id FROM ${other.driver.escape('order')} WHERE id = ${id} FOR UPDATE`);
    return async () => {
      await runner.rollbackTransaction();
      await runner.release();
    };
  };

  it('a single statement waits no longer than it may either', async () => {
    const id = await newOrder();
    const reference = newReference();
    const free = await keep(id);
    await expect(transition(orders(), id, 'READY', 'X', {}, { timeoutMs: 50 })).rejects.toMatchObject({
      code: 'LOCK_TIMEOUT',
    });
    await free();
    const runner = other.createQueryRunner();
    await runner.startTransaction();
    await runner.manager.insert(Order, { reference });
    const late = insertOnce(orders(), { reference }, { key: ['reference'], timeoutMs: 50 });
    await expect(late).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await runner.rollbackTransaction();
    await runner.release();
    expect(await insertOnce(orders(), { reference }, { key: ['reference'] })).toMatchObject({
      inserted: true,
    });
  });
});
