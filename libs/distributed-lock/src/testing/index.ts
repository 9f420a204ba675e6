export { lockStoreConformance, type ConformanceCase, type LockStoreHarness } from './conformance/index.js';
export {
  idempotencyStoreConformance,
  type IdempotencyConformanceCase,
  type IdempotencyStoreHarness,
} from './idempotency-conformance/index.js';
export { LockTesting } from './lock-testing.js';
export { ManualClock } from './manual-clock.js';
export type { LockTestingOptions, TestKeyOptions } from './test-bench.js';
