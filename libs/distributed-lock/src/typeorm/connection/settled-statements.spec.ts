import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { DataSource } from 'typeorm';

import { createLockTables } from '../create-lock-tables.js';
import { typeormStore } from '../lease-table/index.js';
import { settleStatements, type SqliteHandle } from './settled-statements.js';

interface Database extends SqliteHandle {
  close(): void;
}
const Libsql = createRequire(__filename)('libsql') as new (file: string, options: object) => Database;

describe('statements of libsql', () => {
  const folder = mkdtempSync(join(tmpdir(), 'settled-'));
  const file = join(folder, 'app.db');
  const open: Database[] = [];

  const connect = (): Database => {
    const database = new Libsql(file, { timeout: 0 });
    open.push(database);
    return database;
  };
  beforeAll(() => {
    const database = connect();
    database.pragma('journal_mode = WAL');
    database.exec('CREATE TABLE t (v INTEGER)');
  });
  afterAll(() => {
    open.forEach((database) => database.close());
    rmSync(folder, { recursive: true });
  });

  const write = (database: Database): unknown =>
    database.prepare('INSERT INTO t VALUES (1) RETURNING v').all();
  const busy = expect.objectContaining({ code: 'SQLITE_BUSY' });

  it('stay open after they met a busy database, unless they are settled', () => {
    for (const settled of [false, true]) {
      const [ours, other] = [connect(), connect()];
      if (settled) settleStatements(ours);
      other.exec('BEGIN IMMEDIATE');
      const refused = ours.prepare('UPDATE t SET v = 2');
      expect(() => refused.run()).toThrow(busy);
      other.exec('COMMIT');
      write(ours);
      if (settled) expect(() => write(other)).not.toThrow();
      else expect(() => write(other)).toThrow(busy);
      refused.run(); // run again, it is reset: the next round begins with nothing open
    }
  });

  it('take the right to write when a transaction begins, and lose nothing on the way', () => {
    const [ours, other] = [connect(), connect()];
    settleStatements(ours);
    ours.exec('DELETE FROM t');
    ours.prepare('BEGIN TRANSACTION').run();
    expect(() => write(other)).toThrow(busy);
    write(ours);
    ours.prepare('COMMIT').run();
    ours.prepare(' -- undo\n BEGIN').run();
    write(ours);
    ours.prepare('ROLLBACK').run();
    expect(() => ours.prepare('INSERT INTO nowhere VALUES (1)').run()).toThrow('nowhere');
    expect(other.prepare('SELECT count(*) AS n FROM t').all()).toEqual([expect.objectContaining({ n: 1 })]);
  });

  it('of the lock store are committed when it says so', async () => {
    const dataSource = new DataSource({
      type: 'better-sqlite3',
      driver: Libsql,
      database: file,
      enableWAL: true,
    });
    await createLockTables(dataSource);
    const store = typeormStore({ dataSource });
    await store.open?.();
    await store.tryAcquire({ key: 'k', ownerId: 'o', ttlMs: 60_000 }, 1_000);
    expect(connect().prepare('SELECT owner_id FROM lock_lease').all()).toEqual([
      expect.objectContaining({ owner_id: 'o' }),
    ]);
    await store.close();
  });
});
