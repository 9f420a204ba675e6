import { claimCases } from './claim-cases.js';
import type { ContractCase, IdempotencyHarness } from './contract-case.js';
import { modelCases } from './model-cases.js';
import { operatorCases } from './operator-cases.js';
import { ownerCases } from './owner-cases.js';

export type { ContractCase, IdempotencyHarness } from './contract-case.js';

/** Every promise of the idempotency port: run each on a real server. */
export const idempotencyContract: readonly ContractCase[] = [
  ...claimCases,
  ...ownerCases,
  ...operatorCases,
  ...modelCases,
];

/** One test per case, under the case's own name and the ids of the reports it retells. */
export function itKeepsTheContract(harness: () => IdempotencyHarness): void {
  for (const { name, cases = [], run } of idempotencyContract) {
    it(cases.length === 0 ? name : `${name} (${cases.join(', ')})`, () => run(harness()), 60_000);
  }
}
