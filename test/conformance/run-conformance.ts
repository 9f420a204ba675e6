import { lockStoreConformance, type LockStoreHarness } from 'nestjs-distributed-lock/testing';

/** One test per case, under the case's own name and the ids of the reports it retells. */
export function itConforms(harness: () => LockStoreHarness): void {
  for (const { name, cases = [], run } of lockStoreConformance) {
    it(cases.length === 0 ? name : `${name} (${cases.join(', ')})`, () => run(harness()), 60_000);
  }
}
