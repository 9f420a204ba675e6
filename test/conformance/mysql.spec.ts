import { createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { describeOnMySqlKin, type TestServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

describeOnMySqlKin('the lease table on', ({ kind, start }) => {
  let server: TestServer;
  let dataSource: DataSource;

  beforeAll(async () => {
    server = await start();
    dataSource = new DataSource({ type: kind, url: server.url });
    await createLockTables(dataSource);
    await dataSource.initialize();
  });
  afterAll(async () => {
    await dataSource.destroy();
    await server.stop();
  });

  itConforms(() => ({
    connect: async () => typeormStore({ dataSource }),
    evict: async (key) => {
      await dataSource.query('UPDATE lock_lease SET owner_id = NULL, expires_at_us = 0 WHERE `key` = ?', [
        Buffer.from(key),
      ]);
    },
    restart: async () => {
      await server.kill();
      await server.start();
    },
    tokenFloor: () => (Date.now() - 60_000) * 1_000,
    tellsRemainingTime: true,
    peek: async (key) => {
      const sql =
        'SELECT 1 FROM lock_lease WHERE `key` = ? AND expires_at_us > UNIX_TIMESTAMP(NOW(6)) * 1000000';
      const rows = await dataSource.query<unknown[]>(sql, [Buffer.from(key)]);
      return rows.length === 1 ? 'taken' : 'free';
    },
  }));
});
