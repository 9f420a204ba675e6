import * as fc from 'fast-check';

import { hasCode, KeyScope, lockKey } from '../core/index.js';
import { identify, type IdempotentCall } from './record-identity.js';

const bare = new KeyScope({});
const idOf = (call: IdempotentCall, scope = bare): string => identify(call, scope).id;

describe('the identity of a call', () => {
  it('is shared by no two calls that differ in key, operation or caller, whatever delimiters are in them', () => {
    const text = fc.oneof(
      fc.constantFrom('a', 'b', ':', '#', '","', 'a","b', '\\', '"', 'null', '~', '%'),
      fc.string({ minLength: 1 }),
    );
    const part = fc.option(text, { nil: undefined });
    const call = fc.record({ key: text, operation: part, caller: part });
    const equal = (a: object, b: object): boolean =>
      JSON.stringify(Object.entries(a).sort()) === JSON.stringify(Object.entries(b).sort());
    fc.assert(
      fc.property(call, call, (one, other) => {
        fc.pre(!/[\ud800-\udfff]/.test(JSON.stringify([one, other])));
        expect(idOf(one as IdempotentCall) === idOf(other as IdempotentCall)).toBe(equal(one, other));
      }),
      { numRuns: 2_000 },
    );
  });

  it('is 43 characters of base64url, and the same in every process', () => {
    expect(idOf({ key: 'payout:42' })).toMatch(/^[\w-]{43}$/);
    expect(idOf({ key: 'payout:42' })).toBe('x-SG5P6LhJaigtCWZSrji2cpcMzJCjSxvDDQHJrMvPY');
  });

  it('keeps namespaces and tenants apart, and refuses to guess a tenant', () => {
    let tenant: string | undefined = 'a';
    const scoped = new KeyScope({ namespace: 'billing', scope: () => tenant });
    const ofA = idOf({ key: 'k' }, scoped);
    tenant = 'b';
    const ids = [
      ofA,
      idOf({ key: 'k' }, scoped),
      idOf({ key: 'k', scope: 'global' }, scoped),
      idOf({ key: 'k' }),
    ];
    expect(new Set(ids).size).toBe(4);
    tenant = undefined;
    expect(() => idOf({ key: 'k' }, scoped)).toThrow(/tenant is unknown/);
  });

  it('gives the namespace and the key to the outside, or a digest where that would not do', () => {
    const scope = new KeyScope({ namespace: 'billing' });
    const PayoutKey = lockKey('payout:<id>');
    expect(identify({ key: PayoutKey({ id: 42 }) }, scope).idempotencyKey).toBe('billing:payout:42');
    const digests = [{ key: 'k', caller: 'u1' }, { key: 'k', operation: 'pay' }, { key: 'x'.repeat(250) }];
    for (const call of digests) expect(identify(call, scope).idempotencyKey).toBe(idOf(call, scope));
  });

  it('labels records without any value', () => {
    expect(identify({ key: 'payout:42' }, bare).label).toBe('payout:…');
    expect(identify({ key: { key: 'payout:42', template: 'payout:<id>' } }, bare).label).toBe('payout:<id>');
    expect(identify({ key: 'a@b.example', operation: 'payments.create' }, bare).label).toBe(
      'payments.create',
    );
  });

  it('refuses a key that is none', () => {
    for (const key of ['', undefined, 'x'.repeat(1_025), '\ud800']) {
      let error: unknown;
      try {
        idOf({ key } as IdempotentCall);
      } catch (caught) {
        error = caught;
      }
      expect(hasCode(error, 'LOCK_KEY_INVALID')).toBe(true);
    }
  });
});
