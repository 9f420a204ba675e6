import * as fc from 'fast-check';
import { Readable } from 'node:stream';
import { inspect } from 'node:util';

import type { ResultClasses } from './result-classes.js';
import { fromTypedJson, toTypedJson } from './typed-json.js';

class Money {
  constructor(
    readonly amount: bigint,
    readonly currency: string,
  ) {}
  get text(): string {
    return `${this.amount} ${this.currency}`;
  }
}

class Sealed {
  readonly #secret: number;
  constructor(secret: number) {
    this.#secret = secret;
  }
  reveal(): number {
    return this.#secret;
  }
}

const classes: ResultClasses = {
  Money: { type: Money },
  Sealed: {
    type: Sealed,
    store: (sealed) => (sealed as Sealed).reveal(),
    revive: (secret: never) => new Sealed(secret),
  },
};

function roundTrip(value: unknown): unknown {
  return fromTypedJson(toTypedJson(value, { classes }), classes);
}

/** With the types of all parts, with -0, and with dates that are none. */
function shown(value: unknown): string {
  return inspect(value, { depth: Infinity, maxArrayLength: Infinity, maxStringLength: Infinity });
}

const samples: readonly [name: string, value: unknown][] = [
  ['undefined', undefined],
  ['null', null],
  ['text with all sorts of characters', 'ü\u2028\0"\\\ud800 💶'],
  ['an empty string', ''],
  ['numbers that JSON loses', [NaN, Infinity, -Infinity, -0, 0, 1e21, 5e-324, Number.MAX_SAFE_INTEGER]],
  ['a bigint', 123456789012345678901234567890n],
  ['a date, and one that is none', [new Date(1_700_000_000_123), new Date(NaN)]],
  ['a Buffer', Buffer.from([0, 255, 128, 10])],
  [
    'typed arrays',
    [
      new Uint8Array([1, 2]),
      new Float64Array([0.1, -0]),
      new BigInt64Array([-1n]),
      new Uint16Array([1, 65535]),
    ],
  ],
  ['an ArrayBuffer', new Uint8Array([1, 2, 3]).buffer],
  [
    'a Map with keys of all kinds',
    new Map<unknown, unknown>([
      ['a', 1],
      [{ b: 2 }, new Date(5)],
      [3n, new Map([[undefined, null]])],
    ]),
  ],
  ['a Set', new Set([1, '1', 1n, undefined])],
  ['undefined inside', { a: undefined, b: [undefined, null], c: { d: undefined } }],
  ['objects that look like marks', { $: 'date', v: 0, nested: { $: 'undefined' }, list: [{ $: 1 }] }],
  ['a property called __proto__', JSON.parse('{"__proto__": {"polluted": true}, "a": 1}')],
  ['no properties and no items', [{}, [], new Map(), new Set()]],
];

describe('a stored result', () => {
  it.each(samples)('comes back as it was: %s', (_, value) => {
    expect(shown(roundTrip(value))).toBe(shown(value));
    expect(shown(roundTrip({ deep: [{ value }] }))).toBe(shown({ deep: [{ value }] }));
  });

  it('comes back as it was, whatever plain data it is', () => {
    const leaf = fc.oneof(
      fc.anything({
        withBigInt: true,
        withDate: true,
        withMap: true,
        withSet: true,
        withTypedArray: true,
        withNullPrototype: false,
      }),
      fc.dictionary(fc.constantFrom('$', 'v', 'name', '__proto__', 'a'), fc.anything(), {
        noNullPrototype: true,
      }),
    );
    fc.assert(
      fc.property(leaf, (value) => expect(shown(roundTrip(value))).toBe(shown(value))),
      { numRuns: 500 },
    );
    expect(Object.hasOwn(Object.prototype, 'polluted')).toBe(false);
  });

  it('is plain JSON as long as JSON says it all', () => {
    const value = { id: 42, list: [1, 'a', null, true], nested: { a: {} } };
    expect(toTypedJson(value)).toBe(JSON.stringify(value));
  });

  it('brings instances of registered classes back as such, at any depth and with private parts', () => {
    const value = {
      total: new Money(5n, 'EUR'),
      lines: [new Money(2n, 'EUR')],
      sealed: new Map([[1, new Sealed(42)]]),
    };
    const back = roundTrip(value) as typeof value;
    expect(back.total).toBeInstanceOf(Money);
    expect(back.lines[0]?.text).toBe('2 EUR');
    expect(back.sealed.get(1)?.reveal()).toBe(42);
  });

  it('brings other instances back as plain objects, and says so', () => {
    const flattened: string[] = [];
    const text = toTypedJson({ total: new Money(5n, 'EUR') }, { onPlain: (name) => flattened.push(name) });
    expect(fromTypedJson(text)).toStrictEqual({ total: { amount: 5n, currency: 'EUR' } });
    expect(flattened).toEqual(['Money']);
    expect(fromTypedJson(toTypedJson(new URL('https://a.example/b')))).toBe('https://a.example/b');
  });

  it.each<[string, unknown, RegExp]>([
    ['a function', { a: { b: () => 1 } }, /"a\.b" is a function/],
    ['a symbol', Symbol('x'), /it is a symbol/],
    ['a promise', [Promise.resolve(1)], /"0" is a Promise/],
    ['a stream', { file: Readable.from([]) }, /"file" is a Readable/],
    ['an instance that shows nothing', new Sealed(1), /a Sealed, which shows no properties/],
  ])('cannot be %s', (_, value, message) => {
    expect(() => toTypedJson(value)).toThrow(message);
  });

  it('cannot hold itself, but may hold a thing twice', () => {
    const circle: { self?: unknown } = {};
    circle.self = { circle };
    expect(() => toTypedJson(circle)).toThrow(/"self\.circle" is a part of itself/);
    const twice = { a: 1 };
    expect(roundTrip([twice, twice])).toEqual([twice, twice]);
  });

  it('is not made of something else when it cannot be read', () => {
    const text = toTypedJson(new Money(5n, 'EUR'), { classes });
    expect(() => fromTypedJson(text)).toThrow(/class "Money" is not registered/);
    expect(() => fromTypedJson('{"$":"regexp","v":"x"}')).toThrow(/kind "regexp"/);
    expect(() => fromTypedJson('{"$":"class","name":"constructor","v":{}}', classes)).toThrow(
      /not registered/,
    );
  });
});
