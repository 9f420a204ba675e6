import type {
  ClaimAnswer,
  RecordClaim,
  RecordEnding,
  RecordRenewal,
  StoredRecord,
  StoredResult,
} from '../../idempotency/index.js';

/** One connection: of our own, where every statement commits by itself, or of a transaction. */
export interface Session {
  query(sql: string, parameters?: unknown[]): Promise<unknown>;
}

/** What the store does to the table of records, in the words of one dialect. */
export interface RecordStatements {
  readonly create: readonly string[];
  /** Rejects as the database does when the table cannot hold records; resolves with a reason of ours, or null. */
  check(session: Session): Promise<string | null>;
  /** Null when somebody was faster: ask again. */
  claim(session: Session, claim: RecordClaim): Promise<ClaimAnswer | null>;
  /** As the first statement of a transaction: `running` where another one has the record, without waiting for it. */
  claimWithin(session: Session, claim: RecordClaim): Promise<ClaimAnswer | null>;
  renew(session: Session, renewal: RecordRenewal): Promise<boolean>;
  /** True only for the statement that has changed the record. */
  settle(session: Session, id: string, ownerId: string, ending: RecordEnding): Promise<boolean>;
  /** Whether this owner has completed the record, with a statement before. */
  wasCompleted(session: Session, id: string, ownerId: string): Promise<boolean>;
  resolve(session: Session, id: string, result: StoredResult, keepMs: number): Promise<boolean>;
  forget(session: Session, id: string): Promise<'forgotten' | 'running' | 'absent'>;
  read(session: Session, id: string): Promise<StoredRecord | null>;
  purge(session: Session, limit: number): Promise<number>;
}
