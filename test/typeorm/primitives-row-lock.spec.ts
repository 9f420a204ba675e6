import type { DataSource } from 'typeorm';

import { withRowLock } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { connectAll, everywhere, Order } from './primitives-model.js';

const ROUNDS = 200;

describeOnEachDatabase('withRowLock()', (start, dialect) => {
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

  if (dialect === 'sqlite') {
    it('says on SQLite what to use instead', async () => {
      await expect(withRowLock(orders(), 1, () => undefined)).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining('transition()'),
      });
    });
    return;
  }

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

  it('loses none of hundreds of read-modify-writes', async () => {
    const id = await newOrder();
    for (let round = 0; round < ROUNDS / 4; round += 1) {
      await everywhere(sources, 2, (each) =>
        withRowLock(orders(each), id, async (order, manager) => {
          await manager.save(Order, Object.assign(order, { amount: order.amount + 1 }));
        }),
      );
    }
    expect(await amountOf(id)).toBe((ROUNDS / 4) * sources.length * 2);
  });

  it('is needed: without it, the same two steps lose one (positive control)', async () => {
    const id = await newOrder();
    const [one, two] = [await orders().findOneByOrFail({ id }), await orders(other).findOneByOrFail({ id })];
    await orders().save(Object.assign(one, { amount: one.amount + 1 }));
    await orders(other).save(Object.assign(two, { amount: two.amount + 1 }));
    expect(await amountOf(id)).toBe(1);
  });

  it('waits no longer than it may, in the server, and does not run the work', async () => {
    const id = await newOrder();
    const free = await keep(id);
    let entered = false;
    const enter = () => void (entered = true);
    const busy = {
      code: 'LOCK_TIMEOUT',
      outcome: 'not-started',
      message: expect.stringContaining('another transaction'),
    };
    await expect(withRowLock(orders(), id, enter, { timeoutMs: 0 })).rejects.toMatchObject(busy);
    await expect(withRowLock(orders(), id, enter, { timeoutMs: 100 })).rejects.toMatchObject(busy);
    expect(await withRowLock(orders(), id, enter, { timeoutMs: 0, onBusy: 'skip' })).toBeUndefined();
    expect(entered).toBe(false);
    const waiting = withRowLock(orders(), id, () => 'in', { timeoutMs: 20_000 });
    await free();
    expect(await waiting).toBe('in');
  });

  it('is a savepoint inside a transaction: busy is no end of that, and its own limits come back', async () => {
    const id = await newOrder();
    const mine = await newOrder();
    const free = await keep(id);
    const show =
      dialect === 'postgres' ? 'SHOW lock_timeout' : 'SELECT @@innodb_lock_wait_timeout AS lock_timeout';
    await source.transaction(async (manager) => {
      const before: unknown = await manager.query(show);
      const inside = manager.getRepository(Order);
      await inside.update({ id: mine }, { amount: 1 });
      await expect(withRowLock(inside, id, () => 1, { timeoutMs: 10 })).rejects.toMatchObject({
        code: 'LOCK_TIMEOUT',
      });
      await withRowLock(inside, mine, async () => expect(await manager.query(show)).toEqual(before));
      expect(await manager.query(show)).toEqual(before);
    });
    expect(await amountOf(mine)).toBe(1);
    await free();
  });

  it('rolls back with the work, whose error it passes on', async () => {
    const id = await newOrder();
    const failing = withRowLock(orders(), id, async (_order, manager) => {
      await manager.update(Order, { id }, { amount: 1 });
      throw new Error('half way');
    });
    await expect(failing).rejects.toThrow('half way');
    expect(await amountOf(id)).toBe(0);
  });

  it('says that a row is not there', async () => {
    await expect(withRowLock(orders(), 987_654, () => 1)).rejects.toMatchObject({
      name: 'EntityNotFoundError',
    });
  });

  it('names the pool when no connection is free (C094)', async () => {
    const small = await database.connect({ entities: [Order], poolSize: 1 });
    const id = await newOrder();
    const call = () => withRowLock(orders(small), id, () => 'in', { timeoutMs: 50 });
    await small.transaction(async () => {
      await expect(call()).rejects.toMatchObject({
        code: 'LOCK_TIMEOUT',
        message: expect.stringMatching(/pool/),
      });
    });
    expect(await call()).toBe('in');
    await small.destroy();
  });
});
