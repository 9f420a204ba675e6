import type { ConformanceCase } from './conformance-case.js';
import { exclusionCases } from './exclusion-cases.js';
import { keyCases } from './key-cases.js';
import { releaseCases } from './release-cases.js';
import { renewalCases } from './renewal-cases.js';
import { serviceCases } from './service-cases.js';
import { tokenCases } from './token-cases.js';

export type { ConformanceCase, LockStoreHarness } from './conformance-case.js';

/** Every promise of the `LockStore` port, for authors of stores: run each on a real server. */
export const lockStoreConformance: readonly ConformanceCase[] = [
  ...exclusionCases,
  ...tokenCases,
  ...renewalCases,
  ...releaseCases,
  ...keyCases,
  ...serviceCases,
];
