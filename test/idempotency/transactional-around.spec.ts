import { randomUUID } from 'node:crypto';

import { LeaseLostError, type RunOnceOptions } from 'nestjs-distributed-lock';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import { CommitFaults } from './commit-faults.js';
import { codeOf, effect, TransactionalPlace, type Replica } from './transactional-place.js';

const finalErrors = {
  describe: (error: unknown) => (error as Error).message,
  revive: (message: unknown) => new Error(`again: ${String(message)}`),
};

type Around = NonNullable<RunOnceOptions<string>['around']>;

const failsAfterwards: Around = async (body) => {
  await body();
  throw new Error('the lock could not be released');
};

describeOnEachDatabase('the answer of a transactional call', (start, dialect) => {
  /** SQLite commits in this very process. */
  const answersGetLost = dialect !== 'sqlite';
  let place: TransactionalPlace;
  let replica: Replica;
  let other: Replica;
  const faults = new CommitFaults();

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    replica = await place.replica({}, faults.prepare);
    other = await place.replica();
  });
  afterAll(() => place.stop());

  describe.each(['first', 'inside'] as const)('that is claimed %s', (claim) => {
    const transactional = { claim };
    let key: string;
    beforeEach(() => (key = `${claim} ${randomUUID()}`));

    const call = (on: Replica, mark: string, options: RunOnceOptions<string> = {}): Promise<string> =>
      codeOf(elsewhere(() => on.service.runOnce(key, { transactional, ...options }, effect(key, mark))));

    it.each([{}, { finalErrors }])(
      'is that of the body when what is around it fails after the COMMIT (%p)',
      async (options) => {
        expect(await call(replica, 'one', { ...options, around: failsAfterwards })).toBe('resolved: "one"');
        expect(await call(other, 'two', options)).toBe('resolved: "one"');
        expect(await place.effectsOf(key)).toEqual(['one']);
      },
    );

    it('is what the record says, whatever is made of it around the body', async () => {
      const around: Around = async (body) => `${await body()}, changed`;
      expect(await call(replica, 'one', { around })).toBe('resolved: "one"');
      expect(await call(other, 'two', { around })).toBe('resolved: "one"');
    });

    it('is its failure, also when what is around the body drops that: nothing was done', async () => {
      const around: Around = (body) => body().catch(() => 'done');
      const failing = replica.service.runOnce(key, { transactional, around }, async (attempt) => {
        await effect(key)(attempt);
        throw new Error('no');
      });
      expect(await codeOf(failing)).toBe('no');
      expect(await place.effectsOf(key)).toEqual([]);
      expect(await replica.service.inspect(key)).toMatchObject({ state: 'absent', attempt: 1 });
    });

    if (answersGetLost) {
      it('is one effect when the body is repeated around, after a COMMIT without an answer', async () => {
        faults.loseNextAnswer();
        const around: Around = (body) => body().catch(() => body());
        expect(await call(replica, 'one', { around })).toBe('resolved: "one"');
        expect(await call(other, 'two')).toBe('resolved: "one"');
        expect(await place.effectsOf(key)).toEqual(['one']);
      });

      it('is no error that would be kept, when the COMMIT was carried out without an answer', async () => {
        faults.loseNextAnswer();
        expect(await call(replica, 'one', { finalErrors })).toBe('resolved: "one"');
        expect(await call(other, 'two', { finalErrors })).toBe('resolved: "one"');
        expect(await place.effectsOf(key)).toEqual(['one']);
      });
    }

    it('is an error that is kept, when the COMMIT was not carried out', async () => {
      faults.loseNextCommit();
      expect(await call(replica, 'one', { finalErrors })).toBe('ECONNRESET');
      expect(await call(other, 'two', { finalErrors })).toBe('again: connection lost');
      expect(await place.effectsOf(key)).toEqual([]);
    });

    describe('after an attempt that lost its lock', () => {
      beforeEach(async () => {
        const lost = new LeaseLostError('lost', { key, reason: 'expired' });
        await codeOf(elsewhere(() => replica.service.runOnce(key, {}, () => Promise.reject(lost))));
        expect(await replica.service.inspect(key)).toMatchObject({ state: 'lapsed' });
      });

      it('is found by the hook, which is asked again when it has failed', async () => {
        const onCrash = jest
          .fn<{ completed: string }, []>(() => ({ completed: 'found' }))
          .mockImplementationOnce(() => {
            throw new Error('no answer');
          });
        expect(await call(replica, 'one', { onCrash })).toBe('no answer');
        expect(await call(other, 'two', { onCrash })).toBe('resolved: "found"');
        expect(await call(replica, 'three', { onCrash })).toBe('resolved: "found"');
        expect(onCrash).toHaveBeenCalledTimes(2);
        expect(await place.effectsOf(key)).toEqual([]);
      });

      it('is found by the hook, whatever becomes of the COMMIT', async () => {
        faults.loseNextCommit();
        const onCrash = (): { completed: string } => ({ completed: 'found' });
        expect(await call(replica, 'one', { onCrash })).toBe(
          claim === 'first' ? 'resolved: "found"' : 'ECONNRESET',
        );
        faults.next = undefined;
        expect(await call(other, 'two', { onCrash })).toBe('resolved: "found"');
        expect(await place.effectsOf(key)).toEqual([]);
      });

      it('is unknown when the hook says so', async () => {
        expect(await call(replica, 'one', { onCrash: () => 'reject' })).toBe('IDEMPOTENCY_OUTCOME_UNKNOWN');
        expect(await call(other, 'two')).toBe('IDEMPOTENCY_OUTCOME_UNKNOWN');
        expect(await place.effectsOf(key)).toEqual([]);
      });
    });
  });
});
