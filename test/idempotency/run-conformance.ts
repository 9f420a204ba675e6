import { idempotencyStoreConformance, type IdempotencyStoreHarness } from 'nestjs-distributed-lock/testing';

/** One test per case, under the case's own name and the ids of the reports it retells. */
export function itConforms(harness: () => IdempotencyStoreHarness): void {
  for (const { name, cases = [], run } of idempotencyStoreConformance) {
    it(cases.length === 0 ? name : `${name} (${cases.join(', ')})`, () => run(harness()), 60_000);
  }
}
