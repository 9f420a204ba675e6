import type { LockStore } from 'nestjs-distributed-lock';
import { etcdStore } from 'nestjs-distributed-lock/etcd';
import { redisStore } from 'nestjs-distributed-lock/redis';
import { createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import {
  describeWithServers,
  startEtcd,
  startPostgres,
  startRedis,
  type TestServer,
} from '../servers/index.js';

const PATIENCE_MS = 5_000;
const ROUNDS = 3;

describeWithServers(['redis', 'etcd', 'postgres'], 'an application that moves from store to store', () => {
  let redis: TestServer;
  let etcd: TestServer;
  let postgres: TestServer;

  beforeAll(async () => {
    [redis, etcd, postgres] = await Promise.all([startRedis(), startEtcd(), startPostgres()]);
    await createLockTables(new DataSource({ type: 'postgres', url: postgres.url }));
  });
  afterAll(() => Promise.all([redis.stop(), etcd.stop(), postgres.stop()]));

  it('from Redis to etcd to PostgreSQL sees its tokens rise when etcd begins with the largest of Redis', async () => {
    const tokens = await tokensOf(redisStore({ url: redis.url }));
    const tokenOffset = tokens.at(-1) as number;
    tokens.push(...(await tokensOf(etcdStore({ hosts: etcd.url, tokenOffset }))));
    const dataSource = new DataSource({ type: 'postgres', url: postgres.url });
    tokens.push(...(await tokensOf(typeormStore({ dataSource }))));
    expect(tokens).toHaveLength(3 * ROUNDS);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(tokens.every(Number.isSafeInteger)).toBe(true);
  });

  it('to etcd without an offset would see them fall', async () => {
    const [fromRedis = 0] = await tokensOf(redisStore({ url: redis.url }));
    const [fromEtcd = 0] = await tokensOf(etcdStore({ hosts: etcd.url }));
    expect(fromEtcd).toBeLessThan(fromRedis);
  });
});

/** Takes one lock again and again, and closes the store. */
async function tokensOf(store: LockStore): Promise<number[]> {
  const tokens: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const claim = { key: 'invoice:1', ownerId: `${round}`, ttlMs: 10_000 };
    const answer = await store.tryAcquire(claim, PATIENCE_MS);
    if (answer.kind === 'granted') tokens.push(answer.token);
    await store.release({ ...claim, keepForMs: 0 }, PATIENCE_MS);
  }
  await store.close();
  return tokens;
}
