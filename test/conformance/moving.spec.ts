import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { etcdStore } from 'nestjs-distributed-lock/etcd';
import { redisStore } from 'nestjs-distributed-lock/redis';
import {
  createLockTables,
  FencedBy,
  guardDataSource,
  LockTokenColumn,
  typeormStore,
} from 'nestjs-distributed-lock/typeorm';
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm';

import {
  describeWithServers,
  startEtcd,
  startPostgres,
  startRedis,
  type TestServer,
} from '../servers/index.js';

const ROUNDS = 3;

@Entity()
@FencedBy('invoice:<id>')
class Invoice {
  @PrimaryColumn('text') id!: string;
  @Column('int') changes!: number;
  @LockTokenColumn() lockToken!: number;
}

describeWithServers(['redis', 'etcd', 'postgres'], 'an application that moves from store to store', () => {
  let redis: TestServer;
  let etcd: TestServer;
  let postgres: TestServer;
  /** Of an operator, past all guards. */
  let operator: DataSource;

  beforeAll(async () => {
    [redis, etcd, postgres] = await Promise.all([startRedis(), startEtcd(), startPostgres()]);
    operator = databaseOf(postgres);
    await createLockTables(operator);
    await operator.initialize();
    await operator.synchronize();
  });
  afterAll(async () => {
    await operator.destroy();
    await Promise.all([redis.stop(), etcd.stop(), postgres.stop()]);
  });
  beforeEach(() => operator.query('TRUNCATE lock_fence, invoice'));

  it('from Redis to etcd to PostgreSQL writes on, under rising tokens, when it follows the recipe', async () => {
    const tokens = await work(redisStore({ url: redis.url }));
    const tokenOffset = await moveFences('redis:default', 'etcd:default');
    expect(tokenOffset).toBe(tokens.at(-1));
    tokens.push(...(await work(etcdStore({ hosts: etcd.url, tokenOffset }))));
    await moveFences('etcd:default', 'postgres:default');
    tokens.push(...(await work(typeormStore({ dataSource: databaseOf(postgres) }))));
    expect(tokens).toHaveLength(3 * ROUNDS);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(tokens.every(Number.isSafeInteger)).toBe(true);
    expect(await operator.query('SELECT changes FROM invoice')).toEqual([{ changes: 3 * ROUNDS }]);
  });

  it('to etcd is refused by its fences when it leaves out either half of the recipe', async () => {
    const [fromRedis = 0] = await work(redisStore({ url: redis.url }));
    const refusal = { code: 'FENCED_OUT' };
    await expect(work(etcdStore({ hosts: etcd.url, tokenOffset: fromRedis + 10 }))).rejects.toMatchObject(
      refusal,
    );
    await moveFences('redis:default', 'etcd:default');
    await expect(work(etcdStore({ hosts: etcd.url }))).rejects.toMatchObject(refusal);
  });

  /** The recipe of docs/guarantees.md: gives the largest token, and tells the fences of the move. */
  async function moveFences(from: string, to: string): Promise<number> {
    const [row] = await operator.query('SELECT max(token) AS largest FROM lock_fence WHERE store_id = $1', [
      from,
    ]);
    await operator.query('UPDATE lock_fence SET store_id = $2 WHERE store_id = $1', [from, to]);
    return Number(row.largest);
  }

  /** Changes one invoice again and again under its lock, as one application would; gives the tokens. */
  async function work(store: LockStore): Promise<number[]> {
    const dataSource = await databaseOf(postgres).initialize();
    const locks = new LockService({ stores: { default: store } });
    guardDataSource(dataSource, locks);
    const invoices = dataSource.getRepository(Invoice);
    const tokens: number[] = [];
    try {
      for (let round = 0; round < ROUNDS; round += 1) {
        await locks.withLock('invoice:1', { ttlMs: 10_000 }, async ({ token }) => {
          const invoice = (await invoices.findOneBy({ id: '1' })) ?? invoices.create({ id: '1', changes: 0 });
          invoice.changes += 1;
          await invoices.save(invoice);
          tokens.push(token);
        });
      }
      return tokens;
    } finally {
      await locks.close(0);
      await dataSource.destroy();
    }
  }
});

function databaseOf({ url }: TestServer): DataSource {
  return new DataSource({ type: 'postgres', url, entities: [Invoice] });
}
