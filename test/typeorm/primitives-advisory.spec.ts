import type { DataSource } from 'typeorm';

import { lockKey, LockService, memoryStore } from 'nestjs-distributed-lock';
import { guardDataSource, withAdvisoryLock } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { connectAll, everywhere, Order } from './primitives-model.js';

const ROUNDS = 40;

describeOnEachDatabase('withAdvisoryLock()', (start, dialect) => {
  let database: TestDatabase;
  let sources: DataSource[];
  let source: DataSource;
  let other: DataSource;

  beforeAll(async () => {
    database = await start();
    sources = await connectAll(database, 3);
    [source, other] = sources as [DataSource, DataSource];
  });
  beforeEach(() => source.getRepository(Order).clear());
  afterAll(async () => {
    for (const each of sources) await each.destroy();
    await database.stop();
  });

  if (dialect === 'sqlite') {
    it('says on SQLite what to use instead', async () => {
      await expect(withAdvisoryLock('import', () => 1, { dataSource: source })).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
        message: expect.stringContaining('@Locked'),
      });
    });
    return;
  }

  const orders = (of = source) => of.getRepository(Order);
  const locked = <T>(of: DataSource, work: () => Promise<T> | T, timeoutMs = 20_000): Promise<T> =>
    withAdvisoryLock('numbers', work, { dataSource: of, timeoutMs });
  /** What a number without gaps needs: nobody else between the look and the insert. */
  const insertNext = async (of: DataSource): Promise<void> => {
    await withAdvisoryLock(
      'numbers',
      async (manager) => {
        const amount = (await manager.maximum(Order, 'amount')) ?? 0;
        await manager.insert(Order, { reference: `${amount + 1}`, amount: amount + 1 });
      },
      { dataSource: of, timeoutMs: 20_000 },
    );
  };
  const leftovers = async (): Promise<number> => {
    const sql =
      dialect === 'postgres'
        ? "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory'"
        : "SELECT count(*) AS n FROM information_schema.processlist WHERE info LIKE '%GET_LOCK(%' AND id <> connection_id()";
    return Number((await source.query<{ n: unknown }[]>(sql))[0]?.n);
  };

  it('gives hundreds of numbers without gap or double, and leaves nothing behind (C094, C110, C130)', async () => {
    for (let round = 0; round < ROUNDS; round += 1) await everywhere(sources, 2, insertNext);
    const amounts = (await orders().find({ order: { amount: 'ASC' } })).map(({ amount }) => amount);
    expect(amounts).toEqual(Array.from({ length: ROUNDS * sources.length * 2 }, (_, i) => i + 1));
    expect(await leftovers()).toBe(0);
  });

  it('is needed: two who look before either inserts give one number twice (positive control)', async () => {
    const look = async (of: DataSource) => (await orders(of).maximum('amount')) ?? 0;
    const [mine, theirs] = [await look(source), await look(other)];
    await orders().insert({ reference: 'mine', amount: mine + 1 });
    await orders(other).insert({ reference: 'theirs', amount: theirs + 1 });
    expect(await orders().countBy({ amount: 1 })).toBe(2);
  });

  it('is busy for others until the transaction has ended, for no longer than they wait', async () => {
    const Numbers = lockKey('numbers');
    let entered = false;
    const enter = () => void (entered = true);
    await locked(source, async () => {
      const busy = { code: 'LOCK_TIMEOUT', key: 'numbers', outcome: 'not-started' };
      await expect(locked(other, enter, 0)).rejects.toMatchObject(busy);
      await expect(locked(other, enter, 60)).rejects.toMatchObject(busy);
      const skipped = withAdvisoryLock(Numbers, enter, { dataSource: other, timeoutMs: 0, onBusy: 'skip' });
      expect(await skipped).toBeUndefined();
      expect(await withAdvisoryLock('other numbers', () => 'in', { dataSource: other })).toBe('in');
    });
    expect(entered).toBe(false);
    await locked(other, enter, 0);
    expect(entered).toBe(true);
  });

  it('shows what the one before has committed, also where snapshots are the default (C134)', async () => {
    const begun: (() => void)[] = [];
    const inside = new Promise<void>((resolve) => begun.push(resolve));
    const first = withAdvisoryLock(
      'numbers',
      async (manager) => {
        begun[0]?.();
        await manager.insert(Order, { reference: 'first', amount: 1 });
        for (let waiting = 0; waiting === 0;) waiting = await waitersOf(dialect, source);
      },
      { dataSource: source },
    );
    await inside;
    const snapshots = await database.connect({
      entities: [Order],
      ...(dialect === 'postgres' && { extra: { options: '-c default_transaction_isolation=serializable' } }),
    });
    const second = withAdvisoryLock('numbers', (manager) => manager.count(Order), { dataSource: snapshots });
    await first;
    expect(await second).toBe(1);
    await snapshots.destroy();
  });

  it('ends with the work, whose error it passes on and whose writes it undoes', async () => {
    const failing = withAdvisoryLock(
      'numbers',
      async (manager) => {
        await manager.insert(Order, { reference: 'half' });
        throw new Error('half way');
      },
      { dataSource: source },
    );
    await expect(failing).rejects.toThrow('half way');
    expect(await orders().count()).toBe(0);
    await locked(other, () => undefined, 0);
  });

  it('is refused inside a transaction, and finds the only guarded DataSource by itself', async () => {
    const none = withAdvisoryLock('numbers', () => 1);
    await expect(none).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('{ dataSource }'),
    });
    const guarded = await database.connect({ entities: [Order] });
    guardDataSource(guarded, new LockService({ stores: { default: memoryStore() } }));
    expect(await withAdvisoryLock('numbers', () => 'in')).toBe('in');
    await guarded.transaction(async () => {
      await expect(withAdvisoryLock('numbers', () => 1)).rejects.toMatchObject({
        code: 'LOCK_INSIDE_TRANSACTION',
      });
    });
    await guarded.destroy();
  });

  it('names the pool when no connection is free, and gives back the one that comes too late (C052, C094)', async () => {
    const small = await database.connect({ entities: [Order], poolSize: 1 });
    await small.transaction(async () => {
      await expect(locked(small, () => 1, 50)).rejects.toMatchObject({
        message: expect.stringContaining('pool'),
      });
    });
    expect(await locked(small, () => 'in')).toBe('in');
    await small.destroy();
  });

  if (dialect !== 'mysql') return;

  it('rolls back when the connection has lost the lock, and does not use that connection again (C034, C110)', async () => {
    const small = await database.connect({ entities: [Order], poolSize: 1 });
    const ids: unknown[] = [];
    const note = async (of: DataSource) => ids.push(...(await of.query('SELECT connection_id() AS id')));
    await note(small);
    const losing = withAdvisoryLock(
      'numbers',
      async (manager) => {
        await manager.insert(Order, { reference: 'lost' });
        await manager.query('DO RELEASE_ALL_LOCKS()');
      },
      { dataSource: small },
    );
    await expect(losing).rejects.toMatchObject({ code: 'LEASE_LOST', reason: 'session-ended' });
    expect(await orders().count()).toBe(0);
    await note(small);
    expect(ids[1]).not.toEqual(ids[0]);
    await small.destroy();
  });

  it('is refused on Galera, whose nodes do not know the names of each other', async () => {
    const galera = await database.connect({ entities: [Order] });
    const create = galera.createQueryRunner.bind(galera);
    galera.createQueryRunner = (mode) => {
      const runner = create(mode);
      const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
      const answered = async (sql: string, ...rest: unknown[]): Promise<unknown> =>
        sql.includes('wsrep_on') ? [{ Variable_name: 'wsrep_on', Value: 'ON' }] : query(sql, ...rest);
      return Object.assign(runner, { query: answered });
    };
    await expect(locked(galera, () => 1)).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('Galera'),
    });
    await galera.destroy();
  });
});

/** How many connections stand in front of the lock. */
async function waitersOf(dialect: TestDatabase['dialect'], source: DataSource): Promise<number> {
  const sql =
    dialect === 'postgres'
      ? "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
      : "SELECT count(*) AS n FROM information_schema.processlist WHERE state LIKE '%user lock%'";
  return Number((await source.query<{ n: unknown }[]>(sql))[0]?.n);
}
