import { IdempotencyService, type IdempotencyStore } from 'nestjs-distributed-lock';
import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { describeOnMySqlKin, describeWithServers } from '../servers/index.js';
import { ask, assertDone, claimOn, done, lapsed, newId, PATIENCE_MS, settle, take } from './record-steps.js';
import {
  sourceOf,
  startMySqlRecords,
  startPostgresRecords,
  startSqliteRecords,
  type RecordDatabase,
} from './databases.js';

function describeTable(title: string, start: () => Promise<RecordDatabase>): void {
  describe(title, () => {
    let database: RecordDatabase;
    let raw: DataSource;
    const stores: IdempotencyStore[] = [];

    beforeAll(async () => {
      database = await start();
      raw = await sourceOf(database).initialize();
    });
    afterAll(async () => {
      await Promise.all(stores.map((store) => store.close()));
      await raw.destroy();
      await database.stop();
    });

    function storeOn(table?: string): IdempotencyStore {
      const store = typeormIdempotencyStore({ dataSource: raw, ...(table && { table }) });
      stores.push(store);
      return store;
    }

    it('is made only when asked for: boot says how, and twice is harmless, also from many processes at once', async () => {
      await expect(storeOn().open?.()).rejects.toThrow(/Call createIdempotencyTable\(dataSource\) once/);
      await Promise.all(Array.from({ length: 4 }, () => createIdempotencyTable(raw)));
      await storeOn().open?.();
    });

    it('holds no key and no result in its label, and says what each record is', async () => {
      const calls = new IdempotencyService({ store: storeOn() });
      await calls.runOnce('customer:anna@example.org', {}, () => 'secret');
      const rows = await raw.query('SELECT state, attempt, label, body FROM idempotency_record');
      expect(rows).toEqual([{ state: 'done', attempt: 1, label: 'customer:…', body: '"secret"' }]);
    });

    it.each(['', 'a b', 'a"; DROP TABLE idempotency_record; --', 'other.table', 'x'.repeat(51)])(
      'is not called %j',
      (table) => {
        expect(() => typeormIdempotencyStore({ dataSource: raw, table })).toThrow(/at most 50 letters/);
      },
    );

    it('has another name where the application says so', async () => {
      await createIdempotencyTable(raw, 'done_once');
      const store = storeOn('done_once');
      await store.open?.();
      const claim = claimOn(newId());
      await take(store, claim);
      expect(await raw.query('SELECT id FROM done_once')).toEqual([{ id: claim.id }]);
    });

    it('commits by itself: a duplicate is seen although the application rolls back what it did beside it', async () => {
      const store = storeOn();
      const claim = claimOn(newId());
      await raw
        .transaction(async () => {
          await take(store, claim);
          throw new Error('roll back');
        })
        .catch(() => undefined);
      expect((await ask(store, claimOn(claim.id))).kind).toBe('running');
    });
  });
}

describeTable('the idempotency table on SQLite', startSqliteRecords);

describeOnMySqlKin('A server of', (kin) => {
  describeTable(`the idempotency table on ${kin.name}`, () => startMySqlRecords(kin));
});

describeWithServers(['postgres'], 'PostgreSQL', () => {
  describeTable('the idempotency table on PostgreSQL', startPostgresRecords);

  describe('a claim on PostgreSQL that waits for another', () => {
    let database: RecordDatabase;
    let raw: DataSource;
    let store: IdempotencyStore;

    beforeAll(async () => {
      database = await startPostgresRecords();
      raw = await sourceOf(database).initialize();
      await createIdempotencyTable(raw);
      store = typeormIdempotencyStore({ dataSource: raw });
    });
    afterAll(async () => {
      await store.close();
      await raw.destroy();
      await database.stop();
    });

    async function untilBlocked(): Promise<void> {
      const sql = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`;
      while ((await raw.query<unknown[]>(sql)).length === 0);
    }

    it('tells the answer that was committed meanwhile, not what its snapshot shows', async () => {
      const claim = claimOn(newId());
      await take(store, claim);
      await settle(store, claim, lapsed(true));
      const session = raw.createQueryRunner();
      await session.startTransaction();
      const finish = `UPDATE idempotency_record SET state = 'done', leased_until = NULL, outcome = 'value', codec = 'c', body = '1'`;
      await session.query(`${finish} WHERE id = $1`, [claim.id]);
      const waiting = ask(store, claimOn(claim.id));
      await untilBlocked();
      await session.commitTransaction();
      await session.release();
      expect(await waiting).toEqual({ kind: 'done', result: { outcome: 'value', codec: 'c', body: '1' } });
    });

    it('finds the record that was inserted after its snapshot', async () => {
      const claim = claimOn(newId());
      const session = raw.createQueryRunner();
      await session.startTransaction();
      const columns =
        'id, state, owner_id, fence, attempt, taken_over, fingerprint, leased_until, expires_at, label';
      const soon = `now() + interval '1 hour'`;
      await session.query(
        `INSERT INTO idempotency_record (${columns}) VALUES ($1, 'running', 'x', 1, 1, 0, '', ${soon}, ${soon}, '')`,
        [claim.id],
      );
      const waiting = ask(store, claim);
      await untilBlocked();
      await session.commitTransaction();
      await session.release();
      expect(await waiting).toMatchObject({ kind: 'running' });
    });

    it('purges beside another purge, without waiting for it', async () => {
      for (let i = 0; i < 4; i += 1) {
        const claim = claimOn(newId());
        await take(store, claim);
        await settle(store, claim, done('1', 1));
      }
      while ((await expired()) < 4);
      const session = raw.createQueryRunner();
      await session.startTransaction();
      await session.query(
        `SELECT id FROM idempotency_record WHERE state = 'done' AND expires_at < now() ORDER BY expires_at LIMIT 3 FOR UPDATE`,
      );
      expect(await store.purge(10, PATIENCE_MS)).toBe(1);
      await session.rollbackTransaction();
      await session.release();
      expect(await store.purge(10, PATIENCE_MS)).toBe(3);
    });

    async function expired(): Promise<number> {
      const sql = `SELECT count(*)::int AS n FROM idempotency_record WHERE expires_at < clock_timestamp() - interval '60 ms'`;
      const [row] = await raw.query<{ n: number }[]>(sql);
      return row?.n ?? 0;
    }

    it('lies in the schema of the DataSource, also when its name needs quotes', async () => {
      await raw.query('CREATE SCHEMA "Bil""ling"');
      const billing = sourceOf(database, { schema: 'Bil"ling' });
      await createIdempotencyTable(billing);
      const other = typeormIdempotencyStore({ dataSource: billing });
      await other.open?.();
      const claim = claimOn(newId());
      await take(other, claim);
      expect(await raw.query('SELECT id FROM "Bil""ling".idempotency_record')).toEqual([{ id: claim.id }]);
      await other.close();
    });

    it('reads times alike in every time zone of the session (C013)', async () => {
      const zones = ['America/New_York', 'Asia/Seoul'].map((zone) =>
        typeormIdempotencyStore({
          dataSource: sourceOf(database, { extra: { options: `-c timezone=${zone}` } }),
        }),
      );
      const [west, east] = zones as [IdempotencyStore, IdempotencyStore];
      const claim = claimOn(newId());
      await take(west, claim);
      const answer = await ask(east, claimOn(claim.id));
      expect(answer.kind === 'running' && (answer.retryAfterMs ?? 0) > 50_000).toBe(true);
      await settle(east, claim, done('1'));
      await assertDone(west, claim.id, '1');
      await Promise.all(zones.map((store) => store.close()));
    });

    it('calls a database that does not answer unavailable, at boot as in a call', async () => {
      const dataSource = new DataSource({ type: 'postgres', host: '127.0.0.1', port: 1 }); // where nobody ever listens
      const away = typeormIdempotencyStore({ dataSource });
      await expect(away.open?.()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
      const calls = new IdempotencyService({ store: away });
      let runs = 0;
      await expect(calls.runOnce('k', {}, () => ++runs)).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
        outcome: 'not-started',
      });
      expect(runs).toBe(0);
      await away.close();
    });
  });
});
