import { createHash } from 'node:crypto';

import { createLockTables, postgresAdvisoryStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { until } from '../servers/eventually.js';
import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

/** Cases run beside each other, and each store keeps a connection. */
const POOL_SIZE = 40;

const setups = [
  { title: 'read committed', options: '' },
  { title: 'serializable by default (C124)', options: '-c default_transaction_isolation=serializable' },
];

describeWithServers(['postgres'], 'the advisory locks of PostgreSQL', () => {
  describe.each(setups)('$title', ({ options }) => {
    let server: PostgresServer;
    let dataSource: DataSource;

    beforeAll(async () => {
      server = await startPostgres();
      const poolErrorHandler = (): void => undefined; // the restart case
      dataSource = new DataSource({
        type: 'postgres',
        url: server.url,
        extra: { options },
        poolSize: POOL_SIZE,
        poolErrorHandler,
      });
      await createLockTables(dataSource);
      await dataSource.initialize();
    });
    afterAll(async () => {
      await dataSource.destroy();
      await server.stop();
    });

    itConforms(() => ({
      connect: async () => {
        const store = postgresAdvisoryStore({ dataSource });
        await store.open?.();
        return store;
      },
      // As an administrator does it: the lease first, so that its holder does not take the lock again.
      evict: async (key) => {
        const sql = `UPDATE lock_lease SET owner_id = NULL, expires_at = '-infinity' WHERE key = $1`;
        await dataSource.query(sql, [key]);
        const its = `locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = $1`;
        const number = [advisoryLock(key)];
        await dataSource.query(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE ${its}`, number);
        const held = `SELECT 1 FROM pg_locks WHERE granted AND ${its}`;
        await until(
          'its lock ends',
          async () => (await dataSource.query<unknown[]>(held, number)).length === 0,
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
        const sql = 'SELECT 1 FROM lock_lease WHERE key = $1 AND expires_at > clock_timestamp()';
        return (await dataSource.query(sql, [key])).length === 1 ? 'taken' : 'free';
      },
    }));
  });
});

/** What the store locks in the database for this key. */
function advisoryLock(key: string): string {
  const text = `nestjs-distributed-lock lease:"lock_lease":${key}`;
  return createHash('sha256').update(text).digest().readBigInt64BE().toString();
}
