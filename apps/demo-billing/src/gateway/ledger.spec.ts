import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { ChargeRequest } from './charge.js';
import { Ledger } from './ledger.js';

describe('the ledger of the gateway', () => {
  let folder: string;
  let file: string;
  const open: Ledger[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'ledger-'));
    file = join(folder, 'ledger.jsonl');
  });
  afterEach(() => {
    open.splice(0).forEach((ledger) => ledger.close());
    rmSync(folder, { recursive: true });
  });

  const openLedger = (): Ledger => {
    open.push(new Ledger(file));
    return open.at(-1) as Ledger;
  };
  const request = (more: Partial<ChargeRequest> = {}): ChargeRequest => ({
    invoiceId: 'A-1',
    amountMinor: 9007199254740993n,
    currency: 'USD',
    ...more,
  });

  it('charges once for one idempotency key, and gives the same answer again', () => {
    const ledger = openLedger();
    const first = ledger.charge(request({ fencingToken: 1, idempotencyKey: 'payout:A-1' }));
    const again = ledger.charge(request({ fencingToken: 2, idempotencyKey: 'payout:A-1' }));
    expect(first.kind).toBe('charged');
    expect(again).toEqual({ ...first, kind: 'replayed' });
    expect(ledger.report()).toMatchObject({ duplicatesPrevented: 1, staleCallsRefused: 0 });
    expect(ledger.report().charges).toHaveLength(1);
  });

  it('refuses a token lower than the highest one seen for that invoice, and of that invoice only', () => {
    const ledger = openLedger();
    ledger.charge(request({ fencingToken: 7, idempotencyKey: 'a' }));
    expect(ledger.charge(request({ fencingToken: 6, idempotencyKey: 'a' }))).toEqual({
      kind: 'stale',
      highestToken: 7,
    });
    expect(ledger.charge(request({ invoiceId: 'A-2', fencingToken: 6, idempotencyKey: 'b' })).kind).toBe(
      'charged',
    );
    expect(ledger.charge(request({ fencingToken: 7, idempotencyKey: 'a' })).kind).toBe('replayed');
    expect(ledger.report().staleCallsRefused).toBe(1);
  });

  it('remembers the token of a call that was only answered, not charged', () => {
    const ledger = openLedger();
    ledger.charge(request({ fencingToken: 1, idempotencyKey: 'a' }));
    ledger.charge(request({ fencingToken: 9, idempotencyKey: 'a' }));
    expect(ledger.charge(request({ fencingToken: 8, idempotencyKey: 'a' })).kind).toBe('stale');
  });

  it('does not take one key for two payments', () => {
    const ledger = openLedger();
    ledger.charge(request({ idempotencyKey: 'a' }));
    expect(ledger.charge(request({ idempotencyKey: 'a', amountMinor: 1n })).kind).toBe('key-reused');
    expect(ledger.report().charges).toHaveLength(1);
  });

  it('charges every time for callers that send neither', () => {
    const ledger = openLedger();
    ledger.charge(request());
    ledger.charge(request());
    expect(ledger.report().charges.map(({ amountMinor }) => amountMinor)).toEqual([
      9007199254740993n,
      9007199254740993n,
    ]);
  });

  it('knows everything again after a restart, to the last cent', () => {
    const before = openLedger();
    before.charge(request({ fencingToken: 5, idempotencyKey: 'a' }));
    before.charge(request({ fencingToken: 6, idempotencyKey: 'a' }));
    before.charge(request({ fencingToken: 4, idempotencyKey: 'a' }));
    const after = openLedger();
    expect(after.report()).toEqual(before.report());
    expect(after.charge(request({ fencingToken: 5, idempotencyKey: 'b' })).kind).toBe('stale');
    expect(after.charge(request({ fencingToken: 6, idempotencyKey: 'a' })).kind).toBe('replayed');
  });

  it('drops a line that a crash cut off, and goes on behind it', () => {
    const before = openLedger();
    before.charge(request({ idempotencyKey: 'a' }));
    appendFileSync(file, '{"request":{"invoiceId":"請');
    openLedger().charge(request({ invoiceId: 'A-2', idempotencyKey: 'b' }));
    expect(
      openLedger()
        .report()
        .charges.map(({ invoiceId }) => invoiceId),
    ).toEqual(['A-1', 'A-2']);
  });
});
