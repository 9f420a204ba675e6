export { AcceptFencingToken, type AcceptingDecorator } from './accept-fencing-token.decorator.js';
export type { AcceptFencingTokenOptions, TokenSource } from './accepting-site.js';
export { CurrentLease } from './current-lease.decorator.js';
export { DistributedLockModule } from './distributed-lock.module.js';
export { fencingHeaders } from './fencing-token.js';
export {
  Idempotent,
  idempotencyOf,
  provideIdempotency,
  type CallerOfRequest,
  type IdempotencyModuleOptions,
  type IdempotentDecorator,
  type IdempotentOptions,
} from './idempotent/index.js';
export { LockContext, type HeldKey } from './lock-context.js';
export { LockEvents, type ApplicationEvent } from './lock-events.js';
export { LockExceptionFilter } from './lock-exception.filter.js';
export { LockHttpException, toHttpException, type LockProblem } from './lock-problem.js';
export { Locked, type LockedDecorator } from './locked.decorator.js';
export type { BusyLock, LockedOptions, OnBusy } from './locked-options.js';
export { serveStandalone } from './locks-of-object.js';
export type { KeyFunction, KeySource } from './method-key.js';
export type {
  AsyncLockOptions,
  DistributedLockOptions,
  DistributedLockOptionsFactory,
  StaticLockOptions,
  StoreSource,
} from './module-options.js';
export type { ResultKind } from './result-kind.js';
