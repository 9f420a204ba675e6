export { systemClock, type Clock, type Instant, type Timer } from './clock.js';
export { contextLeases, currentLease, requireLease } from './context.js';
export {
  FencedOutError,
  hasCode,
  isLockError,
  LeaseLostError,
  LeaseUncertainError,
  LockConfigInvalidError,
  LockError,
  LockInsideTransactionError,
  LockKeyInvalidError,
  LockNotHeldError,
  LockTimeoutError,
  OutsideTransactionError,
  SelfDeadlockError,
  ShuttingDownError,
  StoreUnavailableError,
  UnfencedWriteError,
  type LockErrorCode,
  type LockErrorDetails,
  type Outcome,
} from './errors.js';
export type { Fence, Fences, TokenInQuestion, TokenOrigin } from './fence.js';
export {
  beginHandOver,
  handedOverToken,
  handedOverTokens,
  requireToken,
  withHandedOver,
  type HandedOverToken,
  type OpenHandOver,
} from './handed-over.js';
export { StaleTokenError, TokenInvalidError, TokenRequiredError } from './handed-over-errors.js';
export { KeyScope, type KeyScopeOptions } from './key-scope.js';
export type { Lease, ReleaseResult } from './lease.js';
export { reliableMs } from './lease-life.js';
export type { Doubt, LeaseState, LossReason } from './lease-state.js';
export {
  LockEventHub,
  tellQuietly,
  type LockEvent,
  type LockEventListener,
  type LockHappening,
  type LockSubject,
} from './lock-events.js';
export {
  isLockKey,
  labelledKey,
  lockKey,
  matchKey,
  parseKeyTemplate,
  renderKey,
  type KeyInput,
  type KeyPart,
  type KeyTemplate,
  type LabelledKey,
  type LockKey,
  type Placeholder,
} from './lock-key.js';
export {
  requireDurationMs,
  type LockDefaults,
  type LockOptions,
  type LockStores,
  type StoreName,
} from './lock-options.js';
export { LockService } from './lock-service.js';
export type { LockServiceOptions } from './lock-service-options.js';
export type {
  Busy,
  Claim,
  Grant,
  KeyWatch,
  LockStore,
  ReleaseAnswer,
  ReleaseRequest,
  RenewalAnswer,
} from './lock-store.js';
export { NativeTokens, requireTokenOffset } from './native-tokens.js';
export { newOwnerId } from './owner-id.js';
export { commandTimeoutMs } from './renewals.js';
export { runOutside } from './section.js';
export { jittered, pause, withinTime } from './wait.js';
export { withDeadline } from './with-deadline.js';
