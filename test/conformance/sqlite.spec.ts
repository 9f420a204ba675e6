import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { createLockTables, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { itConforms } from './run-conformance.js';

const driver: unknown = createRequire(__filename)('libsql');

describe.each([{ enableWAL: true }, { enableWAL: false }])(
  'the lease table on SQLite, %j',
  ({ enableWAL }) => {
    const folder = mkdtempSync(join(tmpdir(), 'lock-sqlite-'));
    const dataSource = new DataSource({
      type: 'better-sqlite3',
      driver,
      database: join(folder, 'app.db'),
      enableWAL,
    });

    beforeAll(async () => {
      await createLockTables(dataSource);
      await dataSource.initialize();
    });
    afterAll(async () => {
      await dataSource.destroy();
      rmSync(folder, { recursive: true });
    });

    itConforms(() => ({
      connect: async () => typeormStore({ dataSource }),
      evict: async (key) => {
        await dataSource.query('UPDATE lock_lease SET owner_id = NULL, expires_at_ms = 0 WHERE key = ?', [
          key,
        ]);
      },
      restart: async () => undefined, // a file has no server: every new connection opens it anew
      tokenFloor: () => (Date.now() - 60_000) * 1_000,
      tellsRemainingTime: true,
      peek: async (key) => {
        const sql = `SELECT 1 FROM lock_lease WHERE key = ? AND expires_at_ms > unixepoch('subsec') * 1000`;
        return (await dataSource.query(sql, [key])).length === 1 ? 'taken' : 'free';
      },
    }));
  },
);
