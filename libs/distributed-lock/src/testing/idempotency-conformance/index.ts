import { claimCases } from './claim-cases.js';
import type { IdempotencyConformanceCase } from './conformance-case.js';
import { modelCases } from './model-cases.js';
import { operatorCases } from './operator-cases.js';
import { ownerCases } from './owner-cases.js';

export type { IdempotencyConformanceCase, IdempotencyStoreHarness } from './conformance-case.js';

/** Every promise of the `IdempotencyStore` port, for authors of stores: run each on a real server. */
export const idempotencyStoreConformance: readonly IdempotencyConformanceCase[] = [
  ...claimCases,
  ...ownerCases,
  ...operatorCases,
  ...modelCases,
];
