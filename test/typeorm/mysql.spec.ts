import {
  Column,
  Entity,
  PrimaryColumn,
  type DataSource,
  type DataSourceOptions,
  type EntityManager,
} from 'typeorm';

import {
  FencedBy,
  fencedTransaction,
  LockTokenColumn,
  readAndFence,
  unfenced,
} from 'nestjs-distributed-lock/typeorm';

import { describeOnMySqlDatabases } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { elsewhere, Owners, seed, type Owner } from './owners.js';

@Entity({ engine: 'MyISAM' })
@FencedBy('archive:<id>')
class Archive {
  @PrimaryColumn()
  id!: number;

  @LockTokenColumn()
  lockToken!: number;
}

@Entity()
@FencedBy('short:<name>')
class Short {
  @PrimaryColumn({ type: 'varchar', length: 4 })
  name!: string;

  @Column({ type: 'int', default: 0 })
  paid!: number;

  @LockTokenColumn()
  lockToken!: number;
}

const invalid = { code: 'LOCK_CONFIG_INVALID' };
const entities = [Invoice, InvoiceLine, Label, Short];

describeOnMySqlDatabases('Guards in the dialect of MySQL', (start, _dialect, server) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start(), entities);
    owner = await owners.add();
    successor = await owners.add();
  });
  beforeEach(() => seed(owner, (id = `${++lastId}`)));
  afterAll(() => owners.stop());

  const read = () => owner.repository(Invoice).findOneByOrFail({ id });
  const inGlobal = async (settings: string, back: string, work: () => Promise<unknown>): Promise<void> => {
    await owner.dataSource.query(`SET GLOBAL ${settings}`);
    try {
      await work();
    } finally {
      await owner.dataSource.query(`SET GLOBAL ${back}`);
    }
  };
  /** A process of its own: its connections are opened under the settings of the moment. */
  const add = (options: object = {}): Promise<Owner> => owners.add({}, options);

  const bodyUnder = ({ locks }: Owner, key: string): Promise<string> =>
    locks.withLock(key, async () => 'entered');

  describe.each([
    { type: 'mysql' },
    { flags: ['-FOUND_ROWS'] },
    { flags: ['FOUND_ROWS'], bigNumberStrings: false },
    { supportBigNumbers: false, bigNumberStrings: false },
    { type: 'mysql', flags: ['-FOUND_ROWS'], supportBigNumbers: true, bigNumberStrings: true },
  ] as Partial<DataSourceOptions>[])('with %j (C109, C040)', (options) => {
    let mine: Owner;
    beforeAll(async () => void (mine = await add(options)));

    it('pass what changes nothing, give tokens as numbers, and refuse what is stale', async () => {
      const { dataSource } = mine;
      const rows = dataSource.getRepository(Invoice);
      const lease = await owners.hold(mine, `invoice:${id}`);
      await lease.run(async () => {
        for (const paid of [5, 5]) await rows.update({ id }, { paid });
        await rows.save(Object.assign(await rows.findOneByOrFail({ id }), { paid: 5 }));
        const shown = await rows.findOneOrFail({ where: { id }, select: { id: true, lockToken: true } });
        expect(shown.lockToken).toBe(lease.token);
        expect(await readAndFence(Invoice, id, dataSource.manager)).toMatchObject({ id, paid: 5 });
        await dataSource.getRepository(InvoiceLine).update({ invoice: { id } }, { text: 'same' });
        const lines = await dataSource.getRepository(InvoiceLine).findBy({ invoice: { id } });
        expect(await dataSource.getRepository(InvoiceLine).remove(lines)).toHaveLength(1);
        await fencedTransaction((manager) => manager.update(Invoice, { id }, { paid: 6 }), { dataSource });
      });
      const current = await owners.takeOver(lease, successor);
      await expect(lease.run(() => rows.update({ id }, { paid: 7 }))).rejects.toMatchObject({
        code: 'FENCED_OUT',
      });
      expect(await read()).toMatchObject({ paid: 6 });
      await current.release();
    });
  });

  it('are refused at the first lock when sessions are not strict', async () => {
    await inGlobal("sql_mode = ''", 'sql_mode = DEFAULT', async () => {
      const mine = await add();
      await expect(bodyUnder(mine, `invoice:${id}`)).rejects.toMatchObject({
        ...invalid,
        message: expect.stringMatching(/sql_mode.*add STRICT_TRANS_TABLES/s) as string,
      });
    });
  });

  it('are refused at the first lock for a table without transactions', async () => {
    const mine = await add({ entities: [Archive], synchronize: true });
    await expect(bodyUnder(mine, 'archive:1')).rejects.toMatchObject({
      ...invalid,
      message: expect.stringMatching(/archive has the engine MyISAM.*ENGINE = InnoDB/s) as string,
    });
  });

  describe('in a session whose sql_mode is weakened later', () => {
    const weakened = async <T>(work: (runner: ReturnType<DataSource['createQueryRunner']>) => Promise<T>) => {
      const runner = owner.dataSource.createQueryRunner();
      await runner.query("SET SESSION sql_mode = ''");
      try {
        return await work(runner);
      } finally {
        await runner.query('SET SESSION sql_mode = @@GLOBAL.sql_mode');
        await runner.release();
      }
    };

    it('the column takes NULL for 0: a NOT NULL alone would let everybody through', async () => {
      await weakened((runner) =>
        unfenced('to see it', () =>
          runner.query(`UPDATE invoice SET paid = 9, lockToken = NULL WHERE id = '${id}'`),
        ),
      );
      expect(await read()).toMatchObject({ paid: 9 });
    });

    it('nothing is written, by a stale owner or by the newest', async () => {
      const lease = await owners.hold(owner, `invoice:${id}`);
      const writes = (): Promise<void> =>
        weakened(async ({ manager }) => {
          for (const write of [
            () => manager.update(Invoice, { id }, { paid: 5 }),
            () =>
              manager.insert(
                InvoiceLine,
                [1, 2].map((n) => ({ invoice: { id }, text: `${n}` })),
              ),
          ])
            await expect(lease.run(write)).rejects.toMatchObject({
              ...invalid,
              message: expect.stringContaining('sql_mode of this session is not strict') as string,
            });
        });
      await writes();
      const current = await owners.takeOver(lease, successor);
      await writes();
      expect(await read()).toMatchObject({ paid: 0, version: 1 });
      await current.release();
    });

    it('a key that is too long for its column is not cut down to that of another row', async () => {
      const write = owner.locks.withLock('short:abcdef', () =>
        weakened(({ manager }) => manager.insert(Short, { name: 'abcdef' })),
      );
      await expect(write).rejects.toMatchObject(invalid);
      expect(await owner.repository(Short).count()).toBe(0);
    });
  });

  it('say FENCED_OUT in whatever language the server speaks', async () => {
    await inGlobal("lc_messages = 'de_DE'", "lc_messages = 'en_US'", async () => {
      const mine = await add();
      const { dataSource } = mine;
      const rows = dataSource.getRepository(Invoice);
      const lease = await owners.hold(mine, `invoice:${id}`);
      await lease.run(async () => {
        await dataSource
          .getRepository(InvoiceLine)
          .remove(await dataSource.getRepository(InvoiceLine).findBy({ invoice: { id } }));
      });
      const current = await owners.takeOver(lease, successor);
      await expect(lease.run(() => rows.update({ id }, { paid: 7 }))).rejects.toMatchObject({
        code: 'FENCED_OUT',
      });
      await current.release();
    });
  });

  it('raise fences that are there for all to see, also where nothing commits by itself', async () => {
    await inGlobal('autocommit = 0', 'autocommit = 1', async () => {
      const mine = await add();
      await mine.locks.withLock(`invoice:${id}`, async ({ token }) => {
        const [fence] = await successor.dataSource.query<{ token: unknown }[]>(
          `SELECT token FROM lock_fence WHERE \`key\` = 'invoice:${id}'`,
        );
        expect(Number(fence?.token)).toBe(token);
      });
    });
  });

  describe('in a fencedTransaction()', () => {
    const limitOf = async (manager: { query: DataSource['query'] }): Promise<number> => {
      const [row] = await manager.query<{ seconds: number }[]>(
        'SELECT @@idle_transaction_timeout AS seconds',
      );
      return Number(row?.seconds);
    };

    // MySQL has no such limit.
    if (server === 'mariadb')
      it('limit idle time to what the lease has left, and put the limit of the connection back', async () => {
        const { dataSource, locks } = await add({ poolSize: 1 });
        await dataSource.query('SET SESSION idle_transaction_timeout = 500');
        const inside = (ttlMs: number): Promise<number[]> =>
          locks.withLock(`invoice:${id}`, { ttlMs }, () =>
            fencedTransaction(
              async (manager) => [await limitOf(manager), await fencedTransaction(limitOf, { dataSource })],
              { dataSource },
            ),
          );
        for (const limit of await inside(200_000)) {
          expect(limit).toBeGreaterThan(100);
          expect(limit).toBeLessThanOrEqual(200);
        }
        expect(await limitOf(dataSource)).toBe(500);
        expect(await inside(900_000)).toEqual([500, 500]);
        await expect(
          locks.withLock(`invoice:${id}`, () =>
            fencedTransaction(() => Promise.reject(new Error('undone')), { dataSource }),
          ),
        ).rejects.toThrow('undone');
        expect(await limitOf(dataSource)).toBe(500);
      });

    describe('after a deadlock whose error is swallowed', () => {
      const pay = (manager: EntityManager): Promise<unknown> => manager.update(Invoice, { id }, { paid: 3 });
      const touch = (by: { query: DataSource['query'] }, where: string): Promise<unknown> =>
        by.query(`UPDATE scratch SET v = v + 1 WHERE ${where}`);

      /** InnoDB undoes the transaction that has written less, and that is ours. */
      async function deadlocked(manager: EntityManager): Promise<void> {
        const other = successor.dataSource.createQueryRunner();
        await elsewhere(() => other.startTransaction());
        await elsewhere(() => touch(other, 'id >= 2'));
        await touch(manager, 'id = 1');
        const crossing = elsewhere(() => touch(other, 'id = 1'));
        await expect(touch(manager, 'id = 2')).rejects.toMatchObject({ code: 'ER_LOCK_DEADLOCK' });
        await crossing;
        await elsewhere(() => other.rollbackTransaction());
        await other.release();
      }

      beforeAll(async () => {
        await owner.dataSource.query('CREATE TABLE scratch (id int PRIMARY KEY, v int NOT NULL)');
        await owner.dataSource.query(
          `INSERT INTO scratch VALUES ${Array.from({ length: 50 }, (_, i) => `(${i + 1}, 0)`).join(', ')}`,
        );
      });

      it('later statements commit one by one, though they stand in a transaction', async () => {
        const plain = await owners.add({ plain: true });
        const half = plain.dataSource.transaction(async (manager) => {
          await deadlocked(manager);
          await pay(manager);
          throw new Error('undone');
        });
        await expect(half).rejects.toThrow('undone');
        expect(await read()).toMatchObject({ paid: 3 });
      });

      it('later statements and the commit are refused with that error', async () => {
        const work = owner.locks.withLock(`invoice:${id}`, () =>
          fencedTransaction(async (manager) => {
            await deadlocked(manager);
            await expect(pay(manager)).rejects.toMatchObject({ code: 'ER_LOCK_DEADLOCK' });
          }),
        );
        await expect(work).rejects.toMatchObject({ code: 'ER_LOCK_DEADLOCK' });
        expect(await read()).toMatchObject({ paid: 0 });
        await owner.locks.withLock(`invoice:${id}`, () => fencedTransaction(pay));
        expect(await read()).toMatchObject({ paid: 3 });
      });
    });
  });
});
