import { idempotencyStoreConformance, type IdempotencyStoreHarness } from 'nestjs-distributed-lock/testing';

import { itRunsBeside } from '../conformance/beside.js';

const LIMIT_MS = 120_000;

/** One test per case, under the case's own name and the ids of the reports it retells. */
export function itConforms(harness: () => IdempotencyStoreHarness): void {
  const cases = idempotencyStoreConformance.map(({ name, cases: ids = [], run }) => ({
    name: ids.length === 0 ? name : `${name} (${ids.join(', ')})`,
    run: () => run(harness()),
  }));
  itRunsBeside(cases, { limitMs: LIMIT_MS, isAlone: (name) => name.includes('purges') });
}
