export { currentAttempt, type Attempt } from './attempt.js';
export type { IdempotentWork } from './attempt-run.js';
export { fingerprintOf } from './fingerprint.js';
export {
  IdempotencyInProgressError,
  IdempotencyKeyInvalidError,
  IdempotencyKeyReusedError,
  IdempotencyLeaseLostError,
  IdempotencyOutcomeUnknownError,
  IdempotencyReentrantError,
  IdempotencyResultOmittedError,
} from './idempotency-errors.js';
export {
  besideLockEvents,
  type IdempotencyEvent,
  type IdempotencyHappening,
  type IdempotencyListener,
  type IdempotentCallEvent,
} from './idempotency-events.js';
export type {
  CrashHook,
  CrashVerdict,
  FinalErrors,
  IdempotencyDefaults,
  RunOnceOptions,
} from './idempotency-options.js';
export { IdempotencyService, type IdempotencyServiceOptions } from './idempotency-service.js';
export type {
  ClaimAnswer,
  Claimed,
  IdempotencyStore,
  OwnedClaim,
  RecordClaim,
  RecordEnding,
  RecordRenewal,
  RecordTransactions,
  StoredRecord,
  StoredResult,
} from './idempotency-store.js';
export type { PurgeOptions } from './purging.js';
export type { IdempotentCall } from './record-identity.js';
export { toTypedJson } from './typed-json.js';
export { ABSENT, nextRecordState, sameRequest, type RecordState, type RecordStep } from './record-state.js';
export type { IsolationLevel, TransactionalOptions } from './transactional-options.js';
export type { RecordView } from './record-view.js';
export type { ResultEncryption } from './stored-result.js';
export type { ResultClass, ResultClasses } from './result-classes.js';
