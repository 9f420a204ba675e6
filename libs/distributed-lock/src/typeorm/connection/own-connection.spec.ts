import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DataSource } from 'typeorm';

import { hasCode } from '../../core/index.js';
import { openOwnConnection, requireSharedDatabase } from './own-connection.js';
import { retryTransient } from '../sql/index.js';

const driver: unknown = createRequire(__filename)('libsql');
const folder = mkdtempSync(join(tmpdir(), 'own-connection-'));
const file = join(folder, 'app.db');

function sqlite(options: object = {}): DataSource {
  return new DataSource({ type: 'better-sqlite3', driver, database: file, enableWAL: true, ...options });
}

describe('openOwnConnection', () => {
  afterAll(() => rmSync(folder, { recursive: true }));

  it('sees the same SQLite file, and commits beside an open transaction of the application that rolls back (C093)', async () => {
    const users = await sqlite().initialize();
    await users.query('CREATE TABLE note (text TEXT)');
    const own = await openOwnConnection(users, { poolSize: 2 });
    const session = users.createQueryRunner();
    await session.startTransaction();
    await session.query('SELECT * FROM note');
    await own.query(`INSERT INTO note VALUES ('ours')`);
    await session.rollbackTransaction();
    expect(await users.query('SELECT text FROM note')).toEqual([{ text: 'ours' }]);
    await own.destroy();
    await users.destroy();
  });

  it('answers busy at once instead of blocking the event loop, and tries again until the writer is done (C111)', async () => {
    const blockedForMs = 60_000;
    const users = await sqlite({ timeout: blockedForMs }).initialize();
    await users.query('CREATE TABLE busy (id INTEGER)');
    const own = await openOwnConnection(users, { poolSize: 1 });
    const session = users.createQueryRunner();
    await session.startTransaction();
    await session.query('INSERT INTO busy VALUES (1)');
    const insert = (): Promise<unknown> => own.query('INSERT INTO busy VALUES (2)');
    const sentAtMs = performance.now();
    await expect(insert()).rejects.toThrow(/locked/);
    expect(performance.now() - sentAtMs).toBeLessThan(blockedForMs / 2);
    await expect(retryTransient(30, insert)).rejects.toThrow(/locked/);
    let tries = 0;
    const retried = retryTransient(blockedForMs, () => {
      tries += 1;
      return insert();
    });
    while (tries < 2) await new Promise(setImmediate);
    await session.commitTransaction();
    await retried;
    expect(await users.query('SELECT id FROM busy ORDER BY id')).toEqual([{ id: 1 }, { id: 2 }]);
    await own.destroy();
    await users.destroy();
  });

  it("runs the application's prepareDatabase, and none of its entities, subscribers, migrations or logging", async () => {
    const prepared: unknown[] = [];
    const users = sqlite({
      logging: true,
      synchronize: true,
      prepareDatabase: (handle: unknown) => void prepared.push(handle),
    });
    const own = await openOwnConnection(users, { poolSize: 1 });
    expect(prepared).toHaveLength(1);
    expect(own.options).toMatchObject({ entities: [], subscribers: [], migrations: [], logging: false });
    expect(own.options).toMatchObject({ synchronize: false, migrationsRun: false, dropSchema: false });
    await own.destroy();
  });

  it.each(['', ':memory:', 'file::memory:', 'file:x?mode=memory'])(
    'refuses the in-memory database %j',
    (database) => {
      expect(() => requireSharedDatabase(sqlite({ database }))).toThrow(
        /own, which would see another database. Use a file/,
      );
    },
  );

  it('refuses other databases by name', async () => {
    const other = { options: { type: 'oracle' } } as unknown as DataSource;
    const refusal = openOwnConnection(other, { poolSize: 1 }).catch((error: unknown) => error);
    expect(hasCode(await refusal, 'LOCK_CONFIG_INVALID')).toBe(true);
    expect(String(await refusal)).toMatch(
      /type "oracle" is not supported; use one of type "postgres", "mysql", "mariadb" or "better-sqlite3"/,
    );
    const inMemory = { options: { type: 'sqljs' } } as unknown as DataSource;
    await expect(openOwnConnection(inMemory, { poolSize: 1 })).rejects.toThrow(
      /use a file with type "better-sqlite3"/,
    );
  });
});
