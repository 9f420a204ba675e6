import type { DataSource, QueryRunner } from 'typeorm';

import { contextLeases, LockConfigInvalidError } from '../../core/index.js';
import type {
  ClaimAnswer,
  Claimed,
  IsolationLevel,
  OwnedClaim,
  RecordClaim,
  RecordEnding,
  RecordTransactions,
} from '../../idempotency/index.js';
import { guardOf, type DataSourceGuard } from '../guard/index.js';
import { pinnedTransaction } from '../pinned-transaction.js';
import { dialectOf, isSerializationFailure, isTransient } from '../sql/index.js';
import type { RecordStatements } from './record-statements.js';

/** Rolls back, and is no error. */
class RollBack extends Error {}

/** Each of these lost races was won by somebody else. */
const MOST_RACES = 50;

/** Transactions of the application's own DataSource that end with the completion of a record. */
export class GuardedTransactions implements RecordTransactions {
  constructor(
    private readonly dataSource: DataSource,
    private readonly statements: RecordStatements,
  ) {}

  requireReady(key: string): void {
    this.#guard().fence.requireOutside(key);
  }

  /** A renewal is a newer version of the row, which a transaction with one snapshot could not change any more. */
  renewable(isolation: IsolationLevel | undefined): boolean {
    const level = isolation ?? this.dataSource.options.isolationLevel;
    const dialect = dialectOf(this.dataSource);
    if (dialect === 'sqlite') return false; // the transaction is the file's only writer
    return level?.startsWith('READ') ?? dialect === 'postgres';
  }

  async settleWithin(
    owned: OwnedClaim,
    isolation: IsolationLevel | undefined,
    work: () => Promise<RecordEnding>,
  ): Promise<'settled' | 'refused'> {
    const { id, ownerId, remainingMs } = owned;
    const refused = new RollBack();
    try {
      await this.#transaction(isolation, remainingMs, async (session) => {
        if (this.#guard().transactions.of(session)?.oneSnapshot) owned.stopRenewing();
        const ending = await work();
        if (!(await this.statements.settle(session, id, ownerId, ending))) throw refused;
      });
      return 'settled';
    } catch (error) {
      if (error === refused) return 'refused';
      throw error;
    }
  }

  async claimWithin(
    claim: RecordClaim,
    isolation: IsolationLevel | undefined,
    work: (claimed: Claimed) => Promise<RecordEnding>,
  ): Promise<ClaimAnswer> {
    for (let race = 0; race < MOST_RACES; race += 1) {
      const answer = await this.#claimOnce(claim, isolation, work);
      if (answer) return answer;
    }
    throw new Error(`another caller was faster ${MOST_RACES} times in a row`);
  }

  /** Null when somebody was faster. */
  async #claimOnce(
    claim: RecordClaim,
    isolation: IsolationLevel | undefined,
    work: (claimed: Claimed) => Promise<RecordEnding>,
  ): Promise<ClaimAnswer | null> {
    const { id, ownerId, leaseMs } = claim;
    let entered = false;
    try {
      return await this.#transaction(isolation, leaseMs, async (session) => {
        const answer = await this.statements.claimWithin(session, claim);
        if (answer?.kind !== 'claimed') return answer;
        entered = true;
        const ending = await work(answer);
        if (await this.statements.settle(session, id, ownerId, ending)) return answer;
        throw new Error('The record that this transaction has claimed could not be settled by it.');
      });
    } catch (error) {
      if (entered) throw error;
      if (isSerializationFailure(error)) return null;
      if (isTransient(error)) return { kind: 'running', retryAfterMs: null }; // somebody kept the row, or the file
      throw error;
    }
  }

  #transaction<T>(
    isolation: IsolationLevel | undefined,
    idleLimitMs: number,
    work: (session: QueryRunner) => Promise<T>,
  ): Promise<T> {
    const guard = this.#guard();
    const held = contextLeases().filter(({ state }) => state.kind !== 'released');
    const leases = held.filter(({ key }) => guard.fence.concerns(key));
    for (const lease of leases) lease.assertHeld();
    const limits = [idleLimitMs, ...leases.map((lease) => lease.remainingMs)];
    const keeping = (_manager: unknown, runner: QueryRunner): Promise<T> => {
      guard.transactions.keepAllWrites(runner);
      return work(runner).finally(() => guard.transactions.mayEnd(runner));
    };
    return pinnedTransaction(guard, { leases, isolation, idleLimitMs: Math.min(...limits) }, keeping);
  }

  #guard(): DataSourceGuard {
    const guard = guardOf(this.dataSource);
    if (guard) return guard;
    throw new LockConfigInvalidError(
      'transactional needs a guarded DataSource, whose transactions can be followed: the one that ' +
        'typeormIdempotencyStore({ dataSource }) was given is not. Nothing was claimed; import ' +
        'DistributedLockTypeOrmModule.forRoot(), or call guardDataSource(), and give the store that very DataSource.',
    );
  }
}
