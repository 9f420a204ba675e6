import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { LockService } from 'nestjs-distributed-lock';
import { redisStore } from 'nestjs-distributed-lock/redis';
import { createLockTables } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { expectTaken } from '../faults/expect-taken.js';
import {
  describeWithServers,
  startRedisSentinel,
  type RedisSentinel,
  type RedisServer,
} from '../servers/index.js';
import { redisCommand } from '../servers/redis-command.js';
import { Invoice, Owner, Rivals } from './rivals.js';
import { SectionHistory } from './section-history.js';

const HOUR_US = 3_600_000_000;
const TTL_MS = 600_000;

describeWithServers(['redis'], 'tokens of Redis over a failover by sentinels', () => {
  let redis: RedisSentinel;
  /** Ended after each test, also when it failed. */
  const ends: (() => unknown)[] = [];

  beforeEach(async () => {
    redis = await startRedisSentinel();
    ends.push(() => redis.stop());
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  it('do not fall with minReplicas, and no lock is granted twice, when the replica that has confirmed is promoted', async () => {
    const services = [1, 2].map(() => serviceWith({ minReplicas: 1 }));
    const [one, other] = services as [LockService, LockService];
    await (await one.acquire('k')).release();
    await setClockBack('k');
    const { master, behind: all } = await loseTouch(1);
    const [behind] = all as [RedisServer];
    const history = new SectionHistory();
    const done = new AbortController();
    const working = services.map((service) => history.fill(service, 'k', done.signal));
    await history.grownBy(15);
    const held = await one.acquire('held', { ttlMs: TTL_MS, waitMs: 60_000 });
    await master.kill();
    const promoted = await redis.failedOver(master);
    expect(promoted).not.toBe(behind);
    behind.resume();
    await redisCommand(behind.port, 'REPLICAOF', promoted.host, String(promoted.port)); // as sentinels do in the end
    await history.grownBy(15);
    done.abort();
    await Promise.all(working);
    expect(history.faults()).toEqual([]);
    await expectTaken(other, 'held');
    await held.extend(TTL_MS);
    expect(await held.release()).toBe('released');
  });

  it('rise without it while clocks agree, though a lock is granted twice: the fence in the database refuses the older owner', async () => {
    const rivals = await rivalsOver('1');
    const { master, behind } = await loseTouch(2);
    const lost = await rivals.begin();
    await failOver(master, behind);
    await rivals.expectSuccession(lost);
  });

  it('fall without it when they are ahead of the clock: the fence in the database refuses the newer owner until an operator raises them', async () => {
    const rivals = await rivalsOver('1');
    await setClockBack('invoice:1');
    const { master, behind } = await loseTouch(2);
    for (let i = 0; i < 3; i += 1) await (await rivals.begin()).release();
    const lost = await rivals.begin();
    const promoted = await failOver(master, behind);
    await rivals.expectStandstill(lost, () => {
      return redisCommand(promoted.port, 'SET', 'lock:{invoice:1}:fence', String(lost.token));
    });
  });

  function serviceWith(options: { readonly minReplicas?: number }): LockService {
    const { sentinels, name } = redis;
    const service = new LockService({ stores: { default: redisStore({ sentinels, name, ...options }) } });
    ends.push(() => service.close(0));
    return service;
  }

  /** Over a row in a database that does not fail over. */
  async function rivalsOver(id: string): Promise<Rivals> {
    const folder = mkdtempSync(join(tmpdir(), 'redis-failover-'));
    ends.push(() => rmSync(folder, { recursive: true }));
    const database = join(folder, 'app.db');
    const operator = await databaseIn(database).initialize();
    await operator.synchronize();
    await createLockTables(operator);
    await operator.destroy();
    return Rivals.over(id, [await ownerOver(database), await ownerOver(database)]);
  }

  async function ownerOver(database: string): Promise<Owner> {
    const rows = await databaseIn(database).initialize();
    ends.push(() => rows.destroy());
    return new Owner(serviceWith({}), rows);
  }

  /** From now on tokens are ahead of the clock, and count by one, as with a master that lags behind the former one. */
  async function setClockBack(key: string): Promise<void> {
    const { port } = await redis.master();
    const fence = `lock:{${key}}:fence`;
    const last = Number(await redisCommand(port, 'GET', fence));
    await redisCommand(port, 'SET', fence, String(last + HOUR_US));
    await redisCommand(port, 'WAIT', '2', '0');
  }

  /** So many replicas hear nothing of the master any more. */
  async function loseTouch(
    count: number,
  ): Promise<{ readonly master: RedisServer; readonly behind: readonly RedisServer[] }> {
    const master = await redis.master();
    const replicas = redis.servers.filter((server) => server !== master);
    const behind = replicas.slice(0, count);
    for (const replica of behind) replica.pause();
    await redisCommand(master.port, 'CLIENT', 'KILL', 'TYPE', 'replica');
    await redis.followed(replicas.length - count);
    return { master, behind };
  }

  async function failOver(master: RedisServer, behind: readonly RedisServer[]): Promise<RedisServer> {
    await master.kill();
    for (const replica of behind) replica.resume();
    return redis.failedOver(master);
  }
});

function databaseIn(database: string): DataSource {
  const driver: unknown = createRequire(__filename)('libsql');
  return new DataSource({ type: 'better-sqlite3', driver, database, enableWAL: true, entities: [Invoice] });
}
