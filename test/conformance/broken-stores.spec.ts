import { AssertionError } from 'node:assert/strict';

import { lockStoreConformance } from 'nestjs-distributed-lock/testing';

import { brokenStores } from './broken-stores.js';
import { memoryHarness } from './memory-harness.js';

/** On a machine that is busy with other things. */
const LIMIT_MS = 120_000;

describe('the conformance suite', () => {
  it(
    'passes the honest store through every case, also with all of them at once',
    async () => {
      const harness = memoryHarness();
      const cases = lockStoreConformance.filter(({ name }) => !name.includes('restart'));
      await Promise.all(cases.map(({ run }) => run(harness)));
    },
    LIMIT_MS,
  );

  it.each(brokenStores)(
    'catches a store that $fault',
    async ({ spoil, caughtBy }) => {
      const conformance = lockStoreConformance.find(({ name }) => name === caughtBy);
      await expect(conformance?.run(memoryHarness(spoil))).rejects.toThrow(AssertionError);
    },
    LIMIT_MS,
  );
});
