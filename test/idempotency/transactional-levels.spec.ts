import { randomUUID } from 'node:crypto';

import { IdempotencyService, type IdempotencyStore, type IsolationLevel } from 'nestjs-distributed-lock';
import { ManualClock } from 'nestjs-distributed-lock/testing';
import { transactionManager } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import { bareStore } from './bare-store.js';
import { codeOf, effect, TransactionalPlace, type Replica } from './transactional-place.js';

const LEVELS: Readonly<Record<string, readonly IsolationLevel[]>> = {
  postgres: ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'],
  mysql: ['READ UNCOMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'],
  sqlite: ['SERIALIZABLE'],
};

/** Takes the snapshot, and no lock that a claim would wait for. */
const ANY_READ = 'SELECT count(*) AS n FROM lock_lease';

/** As its owner sees it. In the database it ends after {@link SHORT_MS}, so that nobody has to wait for its end. */
const LEASE_MS = 60_000;
const SHORT_MS = 50;

/** A call that renews when the test says so, and whose lease is over in the store while its owner is at work. */
class OutlastedLease {
  readonly clock = new ManualClock();
  readonly service: IdempotencyService;
  readonly #renewals: Promise<unknown>[] = [];

  constructor({ store, locks }: Replica) {
    this.service = new IdempotencyService({
      store: this.#withShortLeases(store),
      fences: locks.fences,
      clock: this.clock,
    });
  }

  /** Resolves with the number of renewals that have been sent and answered. */
  async renewals(): Promise<number> {
    await this.clock.advance(LEASE_MS / 3);
    await Promise.all(this.#renewals);
    return this.#renewals.length;
  }

  #withShortLeases(store: IdempotencyStore): IdempotencyStore {
    return {
      ...bareStore(store),
      transactions: store.transactions,
      claim: (claim, timeoutMs) => store.claim({ ...claim, leaseMs: SHORT_MS }, timeoutMs),
      renew: (renewal, timeoutMs) => {
        const answer = store.renew({ ...renewal, leaseMs: SHORT_MS }, timeoutMs);
        this.#renewals.push(answer);
        return answer;
      },
    };
  }
}

/** InnoDB looks at its transactions for this table every tenth of a second at most. */
const SHOWN_AFTER_S = 0.2;
const LEVEL_IN_FORCE = {
  postgres: 'SHOW transaction_isolation',
  mysql:
    'SELECT trx_isolation_level FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = CONNECTION_ID()',
  sqlite: null,
};

describeOnEachDatabase('a transactional call at its level of isolation', (start, dialect) => {
  let place: TransactionalPlace;
  let owner: Replica;
  let successor: Replica;

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    owner = await place.replica();
    successor = await place.replica();
  });
  afterAll(() => place.stop());

  if (dialect === 'postgres')
    it('completes a long body also where the level is the default of the database', async () => {
      const setDefault = (change: string): Promise<unknown> =>
        place.plain.query(
          `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I ${change}', current_database()); END $$`,
        );
      await setDefault('SET default_transaction_isolation = serializable');
      const strict = await place.replica();
      const lease = new OutlastedLease(strict);
      const key = randomUUID();
      const options = { transactional: true, leaseMs: LEASE_MS };
      const level = await lease.service.runOnce(key, options, async (attempt) => {
        await transactionManager().query(ANY_READ);
        expect(await lease.renewals()).toBe(0);
        await effect(key)(attempt);
        return transactionManager().query<unknown>('SHOW transaction_isolation');
      });
      await setDefault('RESET default_transaction_isolation');
      expect(level).toEqual([{ transaction_isolation: 'serializable' }]);
      expect(await place.effectsOf(key)).toEqual(['effect']);
    });

  describe.each(LEVELS[dialect] ?? [])('%s', (isolation) => {
    const transactional = { isolation };
    let key: string;
    beforeEach(() => (key = `${isolation} ${randomUUID()}`));

    it('begins at that level', async () => {
      const level = LEVEL_IN_FORCE[dialect];
      if (level === null)
        return expect(await owner.service.runOnce(key, { transactional }, effect(key))).toBe('effect');
      const rows = await owner.service.runOnce(key, { transactional }, async () => {
        await effect(key)({} as never);
        if (dialect === 'mysql') await transactionManager().query(`SELECT sleep(${SHOWN_AFTER_S})`);
        return transactionManager().query<object[]>(level);
      });
      const found = String(Object.values(rows[0] ?? {})[0]);
      expect(found.toUpperCase()).toBe(isolation);
    });

    it('completes a body that outlasts its lease, whose snapshot is then older than a renewal', async () => {
      const lease = new OutlastedLease(owner);
      const options = { transactional, leaseMs: LEASE_MS };
      const body = async (attempt: Parameters<ReturnType<typeof effect>>[0]): Promise<string> => {
        await transactionManager().query(ANY_READ);
        expect(await lease.renewals()).toBe(isolation.startsWith('READ') ? 1 : 0); // else it could not complete its row
        while ((await successor.service.inspect(key))?.state !== 'lapsed')
          await transactionManager().query(ANY_READ);
        return effect(key)(attempt);
      };
      expect(await lease.service.runOnce(key, options, body)).toBe('effect');
      expect(await place.effectsOf(key)).toEqual(['effect']);
    });

    if (dialect === 'sqlite') return; // nobody can take over from whoever has the file

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
