import { AssertionError } from 'node:assert/strict';

import { lockStoreConformance } from 'nestjs-distributed-lock/testing';

import { brokenStores } from './broken-stores.js';
import { memoryHarness } from './memory-harness.js';

describe('the conformance suite', () => {
  it('passes the honest store through every case, also with all of them at once', async () => {
    const harness = memoryHarness();
    const cases = lockStoreConformance.filter(({ name }) => !name.includes('restart'));
    await Promise.all(cases.map(({ run }) => run(harness)));
  }, 30_000);

  it.each(brokenStores)(
    'catches a store that $fault',
    async ({ spoil, caughtBy }) => {
      const conformance = lockStoreConformance.find(({ name }) => name === caughtBy);
      await expect(conformance?.run(memoryHarness(spoil))).rejects.toThrow(AssertionError);
    },
    30_000,
  );
});
