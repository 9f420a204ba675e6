import type { LedgerReport } from '../gateway/charge.js';
import { RunJournal } from '../run/run-journal.js';
import { accountJson } from './account-json.js';
import { accountText } from './account-text.js';
import { addsUp, drawUpAccount, type Evidence } from './account.js';

const invoice = (id: string, amountMinor: bigint, currency: string) => ({
  id,
  amountMinor,
  currency,
  tenant: 't',
  customer: 'c',
  dueDate: '2025-01-01',
});
const charge = (invoiceId: string, amountMinor: bigint, currency: string) => ({
  chargeId: `charge of ${invoiceId}`,
  invoiceId,
  amountMinor,
  currency,
});

describe('the account of a run', () => {
  const ledger: LedgerReport = {
    charges: [charge('a', 9007199254740993n, 'USD'), charge('b', 1980n, 'JPY'), charge('c', 2n, 'USD')],
    duplicatesPrevented: 2,
    staleCallsRefused: 1,
  };
  const evidence = (more: Partial<Evidence> = {}): Evidence => ({
    invoices: [invoice('a', 9007199254740993n, 'USD'), invoice('b', 1980n, 'JPY'), invoice('c', 2n, 'USD')],
    ledger,
    statuses: new Map([
      ['a', 'SETTLED'],
      ['b', 'SETTLED'],
      ['c', 'SETTLED'],
    ]),
    messages: 6,
    paidOut: 3,
    journal: new RunJournal(),
    durationMs: 1234.5,
    ...more,
  });
  const withCharges = (...charges: LedgerReport['charges']) => evidence({ ledger: { ...ledger, charges } });

  it('adds up when every invoice was charged once and is settled', () => {
    const account = drawUpAccount(evidence());
    expect(addsUp(account)).toBe(true);
    expect(accountText(account, { seed: 7, unsafe: false })).toContain('The money adds up');
  });

  it('ends as one line of JSON, with money as text to the last cent', () => {
    const journal = new RunJournal();
    journal.refused('lease-check');
    journal.pauses = 3;
    journal.replays = 3;
    journal.inProgress = 2;
    journal.attempted('a', 2);
    const json = accountJson(drawUpAccount(evidence({ journal })));
    expect(json).not.toContain('\n');
    expect(JSON.parse(json)).toEqual({
      invoices: 3,
      settled: 3,
      charges: 3,
      doubleCharges: 0,
      totalsMinor: { USD: '9007199254740995', JPY: '1980' },
      staleWritesRefused: 2,
      duplicatesPrevented: 2,
      messages: 6,
      replayed: 3,
      inProgress: 2,
      furtherAttempts: 1,
      paidOut: 3,
      takeOvers: 0,
      pauses: 3,
      kills: 0,
      durationMs: 1235,
      ok: true,
    });
  });

  it('counts and names every double charge', () => {
    const account = drawUpAccount(
      withCharges(...ledger.charges, charge('c', 2n, 'USD'), charge('c', 2n, 'USD')),
    );
    expect(account.doubleCharges).toBe(2);
    expect(addsUp(account)).toBe(false);
    expect(accountText(account, { seed: 7, unsafe: true })).toContain('invoice c was charged 3 times');
  });

  it.each([
    ['is missing', withCharges(ledger.charges[0]!, ledger.charges[1]!), 'invoice c was never charged'],
    [
      'is a cent off',
      withCharges(ledger.charges[0]!, ledger.charges[1]!, charge('c', 3n, 'USD')),
      'invoice c was charged 0.03 USD instead of 0.02 USD',
    ],
    [
      'is in another currency',
      withCharges(ledger.charges[0]!, ledger.charges[1]!, charge('c', 2n, 'EUR')),
      'invoice c was charged 0.02 EUR instead of 0.02 USD',
    ],
    ['is for nobody', withCharges(...ledger.charges, charge('x', 1n, 'USD')), 'nobody asked to charge x'],
  ])('does not add up when a charge %s', (_, given, problem) => {
    const account = drawUpAccount(given);
    expect(account.problems).toEqual([problem]);
    expect(addsUp(account)).toBe(false);
    expect(accountText(account, { seed: 7, unsafe: false })).toContain('THE MONEY DOES NOT ADD UP');
  });

  it('does not add up when the database does not know, or when something happened that must not', () => {
    const journal = new RunJournal();
    journal.incidents.push('worker 1 ended by itself');
    const statuses = new Map([
      ['a', 'READY'],
      ['b', 'SETTLED'],
    ] as const);
    expect(drawUpAccount(evidence({ journal, statuses })).problems).toEqual([
      'worker 1 ended by itself',
      'invoice a is READY in the database',
      'invoice c is gone in the database',
    ]);
  });
});
