import { randomUUID } from 'node:crypto';

import type { TransactionalOptions } from 'nestjs-distributed-lock';
import { transactionManager, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import { OWN_LIMITS_MS } from '../typeorm/waiting-sessions.js';
import { codeOf, effect, TransactionalPlace, write, type Replica } from './transactional-place.js';

const MODES: readonly Required<TransactionalOptions>['claim'][] = ['first', 'inside'];

const ROUNDS = 40;
/** Nobody is to give up because the machine is slow. */
const LONG_WAIT_MS = 60_000;

describeOnEachDatabase('a call with its record in its own transaction', (start, dialect) => {
  let place: TransactionalPlace;
  let replica: Replica;
  let other: Replica;

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    replica = await place.replica();
    other = await place.replica();
  });
  afterAll(() => place.stop());

  describe.each(MODES)('that is claimed %s', (claim) => {
    const transactional = { claim };
    let key: string;
    beforeEach(() => (key = `${claim} ${randomUUID()}`));

    it('commits effect and record together, and gives repetitions the answer of the first', async () => {
      expect(await replica.service.runOnce(key, { transactional }, effect(key, 'one'))).toBe('one');
      expect(await other.service.runOnce(key, { transactional }, effect(key, 'two'))).toBe('one');
      expect(await place.effectsOf(key)).toEqual(['one']);
      expect(await replica.service.inspect(key)).toMatchObject({ state: 'done', outcome: 'value' });
    });

    it('takes the effect back when the body fails, and runs again as the next attempt', async () => {
      const attempts: number[] = [];
      const failing = replica.service.runOnce(key, { transactional }, async ({ attempt }) => {
        attempts.push(attempt);
        await effect(key)({} as never);
        throw new Error('no');
      });
      expect(await codeOf(failing)).toBe('no');
      expect(await place.effectsOf(key)).toEqual([]);
      await other.service.runOnce(key, { transactional }, async (attempt) => {
        attempts.push(attempt.attempt);
        await effect(key)(attempt);
      });
      expect(await place.effectsOf(key)).toEqual(['effect']);
      expect(attempts).toEqual([1, 2]);
    });

    it('keeps a failure that is an answer, without the effect', async () => {
      const finalErrors = {
        describe: (error: unknown) => (error as Error).message,
        revive: (message: unknown) => new Error(`again: ${String(message)}`),
      };
      const options = { transactional, finalErrors };
      const declined = async (): Promise<never> => {
        await effect(key)({} as never);
        throw new Error('declined');
      };
      expect(await codeOf(replica.service.runOnce(key, options, declined))).toBe('declined');
      expect(await codeOf(other.service.runOnce(key, options, effect(key)))).toBe('again: declined');
      expect(await place.effectsOf(key)).toEqual([]);
    });

    it('completes the record with the last statement before COMMIT', async () => {
      const statements: string[] = [];
      const watched = await place.replica({}, (dataSource) => {
        dataSource.subscribers.push({ beforeQuery: ({ query }) => void statements.push(query) });
      });
      await watched.service.runOnce(key, { transactional }, effect(key));
      const commit = statements.lastIndexOf('COMMIT');
      expect(statements[commit - 1]).toMatch(/UPDATE \W?idempotency_record\W? SET [^;]*state = 'done'/);
      expect(statements.slice(commit + 1).filter((statement) => !statement.startsWith('SET '))).toEqual([]);
    });

    it('refuses what would be written beside its transaction, and lets pass what is said to be meant so', async () => {
      const beside = replica.service.runOnce(key, { transactional }, async () => {
        await write(transactionManager(), key, 'inside');
        await write(replica.dataSource, key, 'beside');
      });
      if (dialect === 'sqlite') {
        await beside; // one connection for all: there is no beside
        return expect(await place.effectsOf(key)).toEqual(['beside', 'inside']);
      }
      expect(await codeOf(beside)).toBe('OUTSIDE_TRANSACTION');
      expect(await place.effectsOf(key)).toEqual([]);
      await replica.service.runOnce(key, { transactional }, async () => {
        await write(transactionManager(), key, 'inside');
        await unfenced('an audit trail', () => write(replica.dataSource, key, 'beside'));
        await replica.dataSource.query('SELECT k FROM effect');
      });
      expect(await place.effectsOf(key)).toEqual(['beside', 'inside']);
    });

    it('is not begun inside a transaction that may yet be rolled back', async () => {
      for (const options of [{ transactional }, {}]) {
        const inside = replica.dataSource.transaction(() =>
          replica.service.runOnce(key, options, effect(key)),
        );
        expect(await codeOf(inside)).toBe('LOCK_INSIDE_TRANSACTION');
      }
      const nested = replica.service.runOnce(key, { transactional }, () =>
        replica.service.runOnce(`${key} nested`, { transactional }, effect(key)),
      );
      expect(await codeOf(nested)).toBe('LOCK_INSIDE_TRANSACTION');
      expect(await place.effectsOf(key)).toEqual([]);
      expect(await replica.service.inspect(`${key} nested`)).toBeNull();
    });

    it('tells a repetition at once that it is at work, and gives it the answer when that waits', async () => {
      let repeated!: Promise<string>;
      let waiting!: Promise<unknown>;
      await replica.service.runOnce(key, { transactional, waitMs: 0 }, async (attempt) => {
        const call = (waitMs: number): Promise<unknown> =>
          elsewhere(() => other.service.runOnce(key, { transactional, waitMs }, effect(key, 'two')));
        const askedAtMs = performance.now();
        repeated = codeOf(call(0));
        if (dialect !== 'sqlite' || claim === 'first') {
          expect(await repeated).toBe('IDEMPOTENCY_IN_PROGRESS');
          expect(performance.now() - askedAtMs).toBeLessThan(OWN_LIMITS_MS);
        }
        waiting = call(LONG_WAIT_MS);
        waiting.catch(() => undefined);
        return effect(key, 'one')(attempt);
      });
      expect(await waiting).toBe('one');
      expect(['IDEMPOTENCY_IN_PROGRESS', 'resolved: "one"']).toContain(await repeated);
      expect(await place.effectsOf(key)).toEqual(['one']);
    });

    it('has one winner among callers that race, round after round', async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const raced = `${key} ${round}`;
        const calls = Array.from({ length: 8 }, (_, nr) =>
          (nr % 2 ? replica : other).service.runOnce(
            raced,
            { transactional, waitMs: LONG_WAIT_MS },
            effect(raced, `${nr}`),
          ),
        );
        const answers = new Set(await Promise.all(calls));
        expect(answers.size).toBe(1);
        expect(await place.effectsOf(raced)).toEqual([...answers]);
      }
    });
  });
});
