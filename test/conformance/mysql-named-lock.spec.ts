import { createLockTables, mysqlNamedLockStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { namedLock } from '../faults/session-lock-kinds.js';
import { until } from '../servers/eventually.js';
import { describeOnMySqlKin, type TestServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

/** Cases run beside each other, and each store keeps a connection. */
const POOL_SIZE = 40;

describeOnMySqlKin('the named locks of', ({ kind, start }) => {
  let server: TestServer;
  let dataSource: DataSource;

  beforeAll(async () => {
    server = await start();
    dataSource = new DataSource({ type: kind, url: server.url, poolSize: POOL_SIZE });
    await createLockTables(dataSource);
    await dataSource.initialize();
  });
  afterAll(async () => {
    await dataSource.destroy();
    await server.stop();
  });

  itConforms(() => ({
    connect: async () => {
      const store = mysqlNamedLockStore({ dataSource });
      await store.open?.();
      return store;
    },
    // As an administrator does it: the lease first, so that its holder does not take the lock again.
    evict: async (key) => {
      const sql = 'UPDATE lock_lease SET owner_id = NULL, expires_at_us = 0 WHERE `key` = ?';
      await dataSource.query(sql, [Buffer.from(key)]);
      const [row] = await dataSource.query<{ id: unknown }[]>('SELECT IS_USED_LOCK(?) AS id', [
        namedLock(key),
      ]);
      if (row?.id == null) return;
      await dataSource.query(`KILL ${Number(row.id)}`);
      const list = 'SELECT 1 FROM information_schema.PROCESSLIST WHERE id = ?';
      await until(
        'its connection ends',
        async () => (await dataSource.query<unknown[]>(list, [row.id])).length === 0,
      );
      await new Promise(setImmediate); // the news reaches its holder, in this process, with the answer to that
    },
    restart: async () => {
      await server.kill();
      await server.start();
    },
    tokenFloor: () => (Date.now() - 60_000) * 1_000,
    tellsRemainingTime: true,
    endsLateByMs: 250,
    peek: async (key) => {
      const sql =
        'SELECT 1 FROM lock_lease WHERE `key` = ? AND expires_at_us > UNIX_TIMESTAMP(NOW(6)) * 1000000';
      const rows = await dataSource.query<unknown[]>(sql, [Buffer.from(key)]);
      return rows.length === 1 ? 'taken' : 'free';
    },
  }));
});
