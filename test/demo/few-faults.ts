import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { planFaults } from '../../apps/demo-billing/src/faults/fault-plan.js';
import { withDemo } from './demo-run.js';
import { expectRepetitionsToBeAnswered, expectToAddUp } from './expect-account.js';

const IDS = ['A', 'a', 'B', 'C', 'D', 'E'];

/** Where a fault costs money: a call that is late, and a charge that nobody has noted. */
const DEAREST = 'pause before-charge, pause after-charge, kill after-charge';

/** The first one that strikes there. */
const SEED = Array.from({ length: 1_000 }, (_, seed) => seed).find((seed) => struckBy(seed) === DEAREST);

function struckBy(seed: number): string {
  const { strikes } = planFaults(seed, IDS, 'all');
  return [...strikes.values()].map(({ kind, step }) => `${kind} ${step}`).join(', ');
}

/**
 * Runs the demo on a store, with two pauses, a kill and two lost answers among six invoices: each is paid once, who was
 * paused was kept from writing or charging, and who was killed was succeeded.
 */
export function expectToAddUpOn(store: string, folder: string): Promise<void> {
  const file = join(folder, 'few.csv');
  const lines = IDS.map((id, i) => `${id},t,c,${i + 1}.05,EUR,2025-01-01\n`);
  writeFileSync(file, `id,tenant,customer,amount,currency,due_date\n${lines.join('')}`);
  const args = ['--store', store, '--input', file, '--seed', String(SEED), '--json'];
  return withDemo(args, async (run) => {
    await expectToAddUp(run, file);
    expectRepetitionsToBeAnswered(run);
    const { pauses, kills, staleWritesRefused, takeOvers, duplicatesPrevented } = run.account;
    expect({ pauses, kills }).toEqual({ pauses: 2, kills: 1 });
    expect(staleWritesRefused).toBeGreaterThanOrEqual(pauses);
    expect(takeOvers).toBeGreaterThanOrEqual(kills);
    // Two lost answers, and a pause and a kill between charge and save.
    expect(duplicatesPrevented).toBeGreaterThanOrEqual(4);
  });
}
