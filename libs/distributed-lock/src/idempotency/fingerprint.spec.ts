import { hasCode } from '../core/index.js';
import { canonicalJson, fingerprintOf } from './fingerprint.js';

class PayInvoice {
  constructor(
    readonly id: string,
    readonly amount: number,
    readonly note?: string,
  ) {}
}

class Hidden {
  readonly #amount: number;
  constructor(amount: number) {
    this.#amount = amount;
  }
  amount(): number {
    return this.#amount;
  }
}

describe('canonical JSON', () => {
  it('is that of RFC 8785: numbers, strings and the order of properties', () => {
    const example = JSON.parse(
      '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],' +
        '"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null,true,false]}',
    );
    expect(canonicalJson(example)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
    const sorted = {
      '\u20ac': 'Euro',
      '\r': 'CR',
      '\ufb33': 'Dalet',
      '1': 'One',
      '\u{1f600}': 'Smiley',
      '\u0080': 'Control',
      ö: 'O',
    };
    const order = [...canonicalJson(sorted).matchAll(/:"(\w+)"/g)].map(([, name]) => name);
    expect(order).toEqual(['CR', 'One', 'Control', 'O', 'Euro', 'Smiley', 'Dalet']);
    expect(canonicalJson({ b: 1, 10: 1, 9: 1, A: 1, a: 1 })).toBe('{"10":1,"9":1,"A":1,"a":1,"b":1}');
  });
});

describe('a fingerprint', () => {
  it.each<[string, unknown, unknown]>([
    ['the order of properties', { a: 1, b: { c: 2, d: 3 } }, { b: { d: 3, c: 2 }, a: 1 }],
    ['properties that are undefined', { a: 1, b: undefined }, { a: 1 }],
    ['whether data came as an instance', new PayInvoice('a', 1), { amount: 1, id: 'a' }],
    ['whether an instance names what it lacks', new PayInvoice('a', 1, undefined), new PayInvoice('a', 1)],
    ['no arguments at all', [], []],
  ])('does not depend on %s', (_, one, other) => {
    expect(fingerprintOf(one)).toBe(fingerprintOf(other));
  });

  it.each<[string, unknown, unknown]>([
    ['an amount', { amount: 1 }, { amount: 2 }],
    ['1 and "1"', [1], ['1']],
    ['null and undefined', [null], [undefined]],
    ['null and an absent property', { a: null }, {}],
    ['case', { a: 1, A: 2 }, { a: 2, A: 1 }],
    ['the order of a list', [1, 2], [2, 1]],
    ['a date and its text', [new Date(0)], [new Date(0).toJSON()]],
    ['1 and 1n', [1], [1n]],
    ['0 and -0', [0], [-0]],
    ['bytes', [Buffer.from('a')], [Buffer.from('b')]],
    ['a mark and what it means', [{ $: 'undefined' }], [undefined]],
    ['a property that looks undefined', { a: { $: 'undefined' } }, {}],
  ])('tells apart %s', (_, one, other) => {
    expect(fingerprintOf(one)).not.toBe(fingerprintOf(other));
  });

  it('names its algorithm in two characters and is a digest', () => {
    expect(fingerprintOf({ iban: 'DE00' })).toMatch(/^1:[\w-]{43}$/);
    expect(fingerprintOf([{ a: 1 }])).toBe('1:txP20qmJ6QfFhRanyLtId5LIeF3b82e4Dcd0vzO4WoU');
  });

  it.each<[string, unknown]>([
    ['machinery', [{ handler: () => 1 }]],
    ['what hides its content', [new Hidden(5)]],
    [
      'something endless',
      [
        (() => {
          const a: unknown[] = [];
          a.push(a);
          return a;
        })(),
      ],
    ],
    ['something too deep', [Array.from({ length: 20_000 }).reduce<unknown>((inner) => [inner], null)]],
  ])('is refused for %s, with advice', (_, data) => {
    let error: unknown;
    try {
      fingerprintOf(data);
    } catch (caught) {
      error = caught;
    }
    expect(hasCode(error, 'IDEMPOTENCY_KEY_INVALID')).toBe(true);
    expect(String(error)).toMatch(/The body did not run; say what identifies the call/);
    expect(error).toMatchObject({ statusCode: 400, outcome: 'not-started' });
  });
});
