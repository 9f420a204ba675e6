import fc from 'fast-check';

import {
  labelledKey,
  lockKey,
  LockService,
  matchKey,
  parseKeyTemplate,
  renderKey,
  type KeyInput,
  type KeyPart,
} from './index.js';
import { qualifyKey } from './lock-key.js';
import { memoryStore } from '../stores/memory/index.js';

const seed = Number(process.env.FC_SEED ?? Date.now() % 2 ** 31); // a failure prints it, and FC_SEED repeats it

/** Text with what keys are made of, and with what could be mistaken for it. */
const text = fc.oneof(
  fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' }),
  fc.string({ minLength: 1, maxLength: 8, unit: fc.constantFrom(...':/<>%~{}#.-_ 0aAé漢😀\u0000\n\\\'"') }),
);
const templates = fc.constantFrom(
  '<a>:<b>',
  'invoice:<a>/<b>',
  'x<a>y:<b>z',
  '<a>é<b>',
  'a b<a> <b>',
  '<0>::<1>',
);

function render(template: string, values: readonly unknown[]): string {
  const queue = [...values];
  return renderKey(parseKeyTemplate(template), () => queue.shift());
}

describe('a rendered key', () => {
  it('tells any two lists of values apart, whatever they contain', () => {
    const property = fc.property(templates, text, text, text, text, (template, a, b, c, d) => {
      const same = a === c && b === d;
      expect(render(template, [a, b]) === render(template, [c, d])).toBe(same);
    });
    fc.assert(property, { seed, numRuns: 400 });
    expect(render('<a>:<b>', ['x:y', 'z'])).not.toBe(render('<a>:<b>', ['x', 'y:z']));
  });

  it('gives its values back', () => {
    const property = fc.property(templates, text, text, (template, a, b) => {
      expect(matchKey(parseKeyTemplate(template), render(template, [a, b]))).toEqual([a, b]);
    });
    fc.assert(property, { seed, numRuns: 400 });
  });

  it('is the only text that matches its template with these values', () => {
    const near = fc.string({ maxLength: 16, unit: fc.constantFrom(...':%0123456789abcdefABCDEF3xé.~-') });
    const property = fc.property(templates, near, (template, key) => {
      const values = matchKey(parseKeyTemplate(template), key);
      if (values) expect(render(template, values)).toBe(key);
    });
    fc.assert(property, { seed, numRuns: 1_000 });
  });

  it('does not match another template, another spelling, or more than the whole key', () => {
    const template = parseKeyTemplate('invoice:<id>');
    expect(matchKey(template, 'invoice:42')).toEqual(['42']);
    for (const other of [
      'order:42',
      'invoice:',
      'invoice:4:2',
      'invoice:%34%32',
      'invoice:%3a',
      'invoice:%',
      'x\ninvoice:42',
      'invoice:42\n',
      'Invoice:42',
    ]) {
      // prettier-ignore
      expect(matchKey(template, other)).toBeNull();
    }
    expect(matchKey(parseKeyTemplate('a.b:<id>'), 'axb:1')).toBeNull();
  });

  it.each<[unknown, string]>([
    ['42', 'invoice:42'],
    [42, 'invoice:42'],
    [42n, 'invoice:42'],
    [0, 'invoice:0'],
    [-0, 'invoice:0'],
    [-1.5, 'invoice:-1.5'],
    [1e21, 'invoice:1e%2B21'],
    [2n ** 64n, 'invoice:18446744073709551616'],
    [false, 'invoice:false'],
    [true, 'invoice:true'],
    ['a b', 'invoice:a%20b'],
    ['100%', 'invoice:100%25'],
    ['ключ', 'invoice:%D0%BA%D0%BB%D1%8E%D1%87'],
    ['😀', 'invoice:%F0%9F%98%80'],
    ["!~*'()", 'invoice:%21%7E%2A%27%28%29'],
    [' ', 'invoice:%20'],
  ])('of %p is %s', (value, key) => {
    expect(lockKey('invoice:<id>')({ id: value as KeyPart })).toBe(key);
  });

  it.each([
    ['undefined', undefined],
    ['null', null],
    ['an empty string', ''],
    ['NaN', NaN],
    ['Infinity', Infinity],
    ['-Infinity', -Infinity],
    ['an object', {}],
    ['an object that can be text', { toString: () => '42' }],
    ['a String', new String('42')],
    ['a list', ['42']],
    ['a date', new Date(0)],
    ['a function', () => '42'],
    ['a symbol', Symbol('42')],
    ['half of a surrogate pair', 'a\uD83D'],
  ])('of %s is refused, naming template and part', (_, value) => {
    expect(() => lockKey('invoice:<id>')({ id: value as KeyPart })).toThrow(
      expect.objectContaining({ code: 'LOCK_KEY_INVALID', outcome: 'not-started' }),
    );
    expect(() => lockKey('invoice:<id>')({ id: value as KeyPart })).toThrow(/"invoice:<id>".*<id>/);
  });

  it('follows a path into its values, and refuses one that leads nowhere', () => {
    const key = lockKey('t:<invoice.tenant.id>');
    expect(key({ invoice: { tenant: { id: 7 } } })).toBe('t:7');
    expect(() => key({ invoice: {} } as never)).toThrow(
      expect.objectContaining({ code: 'LOCK_KEY_INVALID' }),
    );
    expect(() => key({ invoice: null } as never)).toThrow('<invoice.tenant.id>');
    expect(() => lockKey('t:<invoice.constructor>')({ invoice: {} } as never)).toThrow('function');
  });

  it('may have 1 024 characters', () => {
    const key = lockKey('k:<id>');
    expect(key({ id: 'a'.repeat(1_022) })).toHaveLength(1_024);
    expect(() => key({ id: 'a'.repeat(1_023) })).toThrow('lock a hash of it');
    expect(() => key({ id: '😀'.repeat(90) })).toThrow('1082');
  });
});

describe('a template', () => {
  it.each([
    ['', 'it is empty'],
    ['invoice:<id', 'never closed'],
    ['invoice:id>', '">"'],
    ['invoice:<>', 'is no parameter'],
    ['invoice:< id>', 'is no parameter'],
    ['invoice:<id.>', 'is no parameter'],
    ['invoice:<a<b>>', 'is no parameter'],
    ['invoice:<a-b>', 'is no parameter'],
    ['invoice:<0x>', 'is no parameter'],
    ['invoice:{id}', '"{"'],
    ['invoice:${id}', '"{"'],
    ['invoice#<id>', '"#"'],
    ['invoice%3A<id>', '"%"'],
    ['invoice\n<id>', String.raw`"\n"`],
    ['invoice\uD83D:<id>', 'may not contain'],
    ['<a><b>', 'separator'],
    ['<a>-<b>', 'separator'],
    ['<a>x1_.<b>', 'separator'],
  ])('%j is refused, and says why', (template, why) => {
    expect(() => lockKey(template)).toThrow(expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }));
    expect(() => lockKey(template)).toThrow(why);
  });

  it('is taken apart into literals and placeholders', () => {
    expect(parseKeyTemplate('t:<0.id>/<name>')).toEqual({
      text: 't:<0.id>/<name>',
      literals: ['t:', '/', ''],
      placeholders: [
        { source: '0.id', path: ['0', 'id'] },
        { source: 'name', path: ['name'] },
      ],
    });
  });
});

describe('what takes the place of a key', () => {
  it('is text, a template without placeholders, or a rendered key with its template', () => {
    expect(labelledKey('invoice:42:x')).toEqual({ key: 'invoice:42:x', template: 'invoice:…' });
    expect(labelledKey('nightly')).toEqual({ key: 'nightly', template: 'nightly' });
    expect(labelledKey(lockKey('nightly'))).toEqual({ key: 'nightly', template: 'nightly' });
    const labelled = { key: 'invoice:42', template: 'invoice:<id>' };
    expect(labelledKey(labelled)).toEqual(labelled);
  });

  it('is refused as a template that has to be rendered first', () => {
    expect(() => labelledKey(lockKey('invoice:<id>') as unknown as KeyInput)).toThrow(
      'render it: Key({ id: … })',
    );
  });

  it.each([
    ['an empty string', ''],
    ['undefined', undefined],
    ['null', null],
    ['not 42', 42],
    ['a value of type bigint', 42n],
    ['undefined', {}],
    ['an empty string', { key: '', template: 't' }],
    ['a value of type function', () => 'k'],
  ])('is refused as %s, before anything is locked', async (said, input) => {
    const locks = new LockService({ stores: { default: memoryStore() } });
    const work = jest.fn();
    const call = locks.withLock(input as string, work);
    await expect(call).rejects.toMatchObject({ code: 'LOCK_KEY_INVALID', outcome: 'not-started' });
    await expect(locks.acquire(input as string)).rejects.toThrow(said);
    expect(work).not.toHaveBeenCalled();
    expect(locks.busy).toBe(false);
  });

  it.each([
    ['k\uDC00', 'surrogate'],
    ['k'.repeat(1_025), '1025'],
  ])('is refused as text that no store could keep (%#)', (key, said) => {
    expect(() => labelledKey(key)).toThrow(said);
  });
});

describe('a qualified key', () => {
  const words = fc.string({ minLength: 1, maxLength: 3, unit: fc.constantFrom(...'a:~') });
  const scopes = fc.option(words, { nil: null });

  it('tells namespaces, tenants and keys apart, whatever they contain', () => {
    const parts = fc.tuple(words, scopes, words);
    const property = fc.property(parts, parts, ([ns1, t1, k1], [ns2, t2, k2]) => {
      const same = ns1 === ns2 && t1 === t2 && k1 === k2;
      expect(qualifyKey(k1, ns1, t1) === qualifyKey(k2, ns2, t2)).toBe(same);
    });
    fc.assert(property, { seed, numRuns: 3_000 });
  });

  it('reads as people write it', () => {
    expect(qualifyKey('invoice:42', undefined, undefined)).toBe('invoice:42');
    expect(qualifyKey('invoice:42', 'billing', undefined)).toBe('billing:invoice:42');
    expect(qualifyKey('invoice:42', 'billing', 'acme')).toBe('billing:~acme:invoice:42');
    expect(qualifyKey('invoice:42', 'billing', null)).toBe('billing:~:invoice:42');
  });
});
