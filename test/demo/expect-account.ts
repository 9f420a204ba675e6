import { type DemoRun } from './demo-run.js';
import { expectedTotals } from './expected-totals.js';

/** Every invoice of the file charged once, settled, and summed up to the last cent; nothing left behind. */
export async function expectToAddUp(run: DemoRun, file: string): Promise<void> {
  const exitCode = await run.exited();
  const { count, totalsMinor } = expectedTotals(file);
  const told = `${run.stdout}\n${run.stderr}`;
  expect({ exitCode, told }).toEqual({ exitCode: 0, told });
  expect(run.account).toMatchObject({
    invoices: count,
    settled: count,
    charges: count,
    doubleCharges: 0,
    totalsMinor,
    ok: true,
  });
  expect(run.litter).toEqual([]);
}

/**
 * Each message was acknowledged by the word of the store: one of the two of an invoice by whoever settled it, the other one
 * from the record. A worker that was paused may get its successor's answer without asking for it.
 */
export function expectRepetitionsToBeAnswered({ account }: DemoRun): void {
  const { invoices, pauses } = account;
  expect(account).toMatchObject({ messages: 2 * invoices, paidOut: invoices });
  expect(account.replayed).toBeGreaterThanOrEqual(invoices - pauses);
  expect(account.inProgress).toBeGreaterThanOrEqual(1);
}
