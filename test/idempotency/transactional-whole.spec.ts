import { randomUUID } from 'node:crypto';

import type { Attempt } from 'nestjs-distributed-lock';
import { transactionManager, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { codeOf, effect, TransactionalPlace, write, type Replica } from './transactional-place.js';

const SLOW = { postgres: 'SELECT pg_sleep(0.05)', mysql: 'SELECT sleep(0.05)', sqlite: 'SELECT 1' };

/** Each would end the transaction in the middle of the body. */
const ENDS: Readonly<Record<keyof typeof SLOW, readonly string[]>> = {
  postgres: ['COMMIT', 'END', 'ROLLBACK', "PREPARE TRANSACTION 'x'"],
  mysql: ['COMMIT', 'ROLLBACK', 'BEGIN', 'CREATE TABLE made (n int)', 'ALTER TABLE effect ADD n int'],
  sqlite: ['COMMIT', 'ROLLBACK'],
};

describeOnEachDatabase('what a transactional call writes', (start, dialect) => {
  let place: TransactionalPlace;
  let replica: Replica;

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    replica = await place.replica();
  });
  afterAll(() => place.stop());

  describe.each(['first', 'inside'] as const)('that is claimed %s', (claim) => {
    const transactional = { claim };
    let key: string;
    beforeEach(() => (key = `${claim} ${randomUUID()}`));
    const call = (work: (attempt: Attempt) => Promise<unknown>): Promise<string> =>
      codeOf(replica.service.runOnce(key, { transactional }, work));

    it('goes with its failure, also what a branch of it goes on to write', async () => {
      let branch!: Promise<string>;
      const failing = call(async () => {
        const manager = transactionManager();
        const goOn = async (): Promise<void> => {
          for (let nr = 0; nr < 8; nr += 1) await write(manager, key, `branch ${nr}`);
        };
        branch = codeOf(goOn());
        await write(manager, key, 'first');
        throw new Error('no');
      });
      expect(await failing).toBe('no');
      expect(await branch).toBe('OUTSIDE_TRANSACTION');
      expect(await place.effectsOf(key)).toEqual([]);
    });

    it('goes with its failure, also what was under way when that came', async () => {
      let branch!: Promise<string>;
      const failing = call(() => {
        const manager = transactionManager();
        branch = codeOf(manager.query(SLOW[dialect]).then(() => write(manager, key, 'late')));
        return Promise.reject(new Error('no'));
      });
      expect(await failing).toBe('no');
      expect(await branch).toBe('OUTSIDE_TRANSACTION');
      expect(await place.effectsOf(key)).toEqual([]);
    });

    it('stays after a failure when it says so', async () => {
      const branches: Promise<void>[] = [];
      await call(() => {
        const manager = replica.dataSource;
        const later = unfenced('a trail', () =>
          manager.query(SLOW[dialect]).then(() => write(manager, key, 'trail')),
        );
        branches.push(later);
        return Promise.reject(new Error('no'));
      });
      await Promise.all(branches);
      expect(await place.effectsOf(key)).toEqual(['trail']);
    });

    it.each(ENDS[dialect])('is not cut in two by %s', async (sql) => {
      const cut = call(async (attempt) => {
        await effect(key, 'before')(attempt);
        await transactionManager().query(sql);
        await effect(key, 'after')(attempt);
      });
      expect(await cut).toBe('OUTSIDE_TRANSACTION');
      expect(await place.effectsOf(key)).toEqual([]);
      const dropped = call(async (attempt) => {
        await effect(key, 'before')(attempt);
        await codeOf(transactionManager().query(sql));
        return effect(key, 'after')(attempt);
      });
      expect(await dropped).toBe('resolved: "after"');
      expect(await place.effectsOf(key)).toEqual(['after', 'before']);
    });

    it('goes in savepoints with what is caught of it', async () => {
      const body = call(async (attempt) => {
        await effect(key, 'kept')(attempt);
        const inner = transactionManager().transaction(async (manager) => {
          await write(manager, key, 'dropped');
          throw new Error('no');
        });
        expect(await codeOf(inner)).toBe('no');
        return 'done';
      });
      expect(await body).toBe('resolved: "done"');
      expect(await place.effectsOf(key)).toEqual(['kept']);
    });

    if (dialect === 'postgres')
      it('is not said to be done when a failed statement of it was dropped (25P02)', async () => {
        const dropping = call(async (attempt) => {
          await effect(key)(attempt);
          await codeOf(transactionManager().query('SELECT nothing'));
        });
        expect(await dropping).toBe('25P02');
        expect(await place.effectsOf(key)).toEqual([]);
        expect(await replica.service.inspect(key)).toMatchObject({ state: 'absent' });
      });

    it('can be written by the same connection of the pool, after a call that was refused an end of its own', async () => {
      await call(() => transactionManager().query('ROLLBACK'));
      await write(replica.dataSource, key, 'by itself');
      expect(await call(effect(key))).toBe('resolved: "effect"');
      expect(await place.effectsOf(key)).toEqual(['by itself', 'effect']);
    });
  });
});
