import { AssertionError } from 'node:assert/strict';
import crypto from 'node:crypto';

import { idempotencyStoreConformance } from 'nestjs-distributed-lock/testing';

import { brokenStores, spoiltHarness, type BrokenStore } from './broken-stores.js';

/** The steps are the same in every run, and with them what they bring to light. */
const SEED = 20;

describe('the conformance suite of idempotency stores', () => {
  it('passes the honest store through every case, also with all of them at once', async () => {
    const harness = spoiltHarness();
    const cases = idempotencyStoreConformance.filter(({ name }) => !name.includes('purges'));
    await Promise.all(cases.map(({ run }) => run(harness)));
  });

  it.each(brokenStores)('catches a store that $fault', async ({ spoil, caughtBy }) => {
    const promise = idempotencyStoreConformance.find(({ name }) => name === caughtBy);
    await expect(promise?.run(spoiltHarness(spoil))).rejects.toThrow(AssertionError);
  });

  it('catches most of them as well by random steps that are compared with the transition function', async () => {
    const seeds = jest.spyOn(crypto, 'randomInt').mockImplementation(() => SEED as never);
    const model = idempotencyStoreConformance.find(({ name }) => name.includes('random sequences'));
    const isCaught = async ({ spoil }: BrokenStore): Promise<boolean> => {
      try {
        await model?.run(spoiltHarness(spoil));
        return false;
      } catch {
        return true;
      }
    };
    const caught = await Promise.all(brokenStores.map(isCaught));
    expect(seeds).toHaveBeenCalledTimes(brokenStores.length);
    seeds.mockRestore();
    expect(caught.filter(Boolean).length).toBeGreaterThanOrEqual(8);
  });
});
