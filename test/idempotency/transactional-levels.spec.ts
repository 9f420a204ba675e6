import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import type { IsolationLevel } from 'nestjs-distributed-lock';
import { transactionManager } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import { codeOf, effect, TransactionalPlace, type Replica } from './transactional-place.js';

const LEVELS: Readonly<Record<string, readonly IsolationLevel[]>> = {
  postgres: ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'],
  mariadb: ['READ UNCOMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'],
  sqlite: ['SERIALIZABLE'],
};

/** Takes the snapshot, and no lock that a claim would wait for. */
const ANY_READ = 'SELECT count(*) AS n FROM lock_lease';

describeOnEachDatabase('a transactional call at its level of isolation', (start, type) => {
  let place: TransactionalPlace;
  let owner: Replica;
  let successor: Replica;

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    owner = await place.replica();
    successor = await place.replica();
  });
  afterAll(() => place.stop());

  if (type === 'postgres')
    it('completes a long body also where the level is the default of the database', async () => {
      const setDefault = (change: string): Promise<unknown> =>
        place.plain.query(
          `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I ${change}', current_database()); END $$`,
        );
      await setDefault('SET default_transaction_isolation = serializable');
      const strict = await place.replica();
      const key = randomUUID();
      const level = await strict.service.runOnce(
        key,
        { transactional: true, leaseMs: 300 },
        async (attempt) => {
          const endsAtMs = performance.now() + 250; // two renewals
          while (performance.now() < endsAtMs) {
            await transactionManager().query(ANY_READ);
            await sleep(30);
          }
          await effect(key)(attempt);
          return transactionManager().query<unknown>('SHOW transaction_isolation');
        },
      );
      await setDefault('RESET default_transaction_isolation');
      expect(level).toEqual([{ transaction_isolation: 'serializable' }]);
      expect(await place.effectsOf(key)).toEqual(['effect']);
    });

  describe.each(LEVELS[type] ?? [])('%s', (isolation) => {
    const transactional = { isolation };
    let key: string;
    beforeEach(() => (key = `${isolation} ${randomUUID()}`));

    it('begins at that level', async () => {
      const level = {
        postgres: 'SHOW transaction_isolation',
        mariadb: 'SELECT @@tx_isolation',
        sqlite: null,
      }[type];
      if (level === null)
        return expect(await owner.service.runOnce(key, { transactional }, effect(key))).toBe('effect');
      const rows = await owner.service.runOnce(key, { transactional }, async () => {
        await effect(key)({} as never);
        return transactionManager().query<object[]>(level);
      });
      const found = String(Object.values(rows[0] ?? {})[0])
        .replaceAll('-', ' ')
        .toUpperCase();
      // MariaDB shows the session's level, not that of the one transaction which SET TRANSACTION is for.
      expect(type === 'mariadb' ? isolation : found).toBe(isolation);
    });

    it('completes a body that takes longer than a renewal waits, whose snapshot is then older than a renewal', async () => {
      const body = async (attempt: Parameters<ReturnType<typeof effect>>[0]): Promise<string> => {
        const endsAtMs = performance.now() + 450; // a lease, and half of one more
        while (performance.now() < endsAtMs) {
          await transactionManager().query(ANY_READ); // the server ends what stands idle for as long as a lease
          await sleep(30);
        }
        return effect(key)(attempt);
      };
      expect(await owner.service.runOnce(key, { transactional, leaseMs: 300 }, body)).toBe('effect');
      expect(await place.effectsOf(key)).toEqual(['effect']);
    });

    if (type === 'sqlite') return; // nobody can take over from whoever has the file

    it('rolls back an owner whose record was taken over, and gives it the answer of its successor', async () => {
      const first = owner.service.runOnce(key, { transactional }, async (attempt) => {
        await transactionManager().query(ANY_READ);
        await effect(key, 'first')(attempt);
        await place.lapse();
        await elsewhere(() => successor.service.runOnce(key, { transactional }, effect(key, 'second')));
        return 'first';
      });
      expect(await first).toBe('second');
      expect(await place.effectsOf(key)).toEqual(['second']);
    });

    it('tells an owner whose successor is at work that its outcome is unknown, and keeps nothing of it', async () => {
      let finish!: () => void;
      const finished = new Promise<void>((resolve) => (finish = resolve));
      let second!: Promise<string>;
      const first = owner.service.runOnce(key, { transactional }, async (attempt) => {
        await effect(key, 'first')(attempt);
        await place.lapse();
        await new Promise<void>((begun) => {
          const body = async (): Promise<string> => (begun(), await finished, 'second');
          second = elsewhere(() => successor.service.runOnce(key, {}, body));
        });
        return 'first';
      });
      expect(await codeOf(first)).toMatch(/^(?:IDEMPOTENCY_LEASE_LOST)$/);
      finish();
      expect(await second).toBe('second');
      expect(await place.effectsOf(key)).toEqual([]);
    });
  });
});
