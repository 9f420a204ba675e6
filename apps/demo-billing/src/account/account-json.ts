import { addsUp, staleWritesRefused, type Account } from './account.js';

/** The account for programs: one line. Money is text in whole minor units, since JSON's numbers are floats. */
export function accountJson(account: Account): string {
  const {
    invoices,
    settled,
    charges,
    doubleCharges,
    duplicatesPrevented,
    repetitions,
    takeOvers,
    pauses,
    kills,
    durationMs,
  } = account;
  return JSON.stringify({
    invoices,
    settled,
    charges,
    doubleCharges,
    totalsMinor: Object.fromEntries([...account.totalsMinor].map(([code, minor]) => [code, String(minor)])),
    staleWritesRefused: staleWritesRefused(account),
    duplicatesPrevented,
    ...repetitions,
    takeOvers,
    pauses,
    kills,
    durationMs,
    ok: addsUp(account),
  });
}
