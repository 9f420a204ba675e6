import { labelledKey, lockKey } from '../core/index.js';
import { keyOfMethod, type KeySource } from './method-key.js';

const parameters = ['id', 'invoice', null].map((name) => ({ name, rest: false }));
const rest = { name: 'others', rest: true };

function keyOf(source: KeySource, args: readonly unknown[], known = parameters): string {
  return labelledKey(
    keyOfMethod(source, { decorator: '@Locked', label: 'Billing.settle', parameters: known })(args),
  ).key;
}

describe('the key of a call', () => {
  it.each([
    ['a parameter by name', 'invoice:<id>', ['42'], 'invoice:42'],
    ['a property', '<invoice.customer.id>', ['', { customer: { id: 7 } }], '7'],
    ['a position', 'invoice:<0>', ['42'], 'invoice:42'],
    ['a property of a position', '<2.id>', ['', '', { id: 'x' }], 'x'],
    ['text alone', 'nightly', [], 'nightly'],
    ['several placeholders', '<id>:<invoice.id>', ['x:y', { id: 'z' }], 'x%3Ay:z'],
  ])('is made from %s', (_, template, args, key) => {
    expect(keyOf(template, args)).toBe(key);
  });

  it('is made from a lockKey(), by the names of its placeholders', () => {
    expect(keyOf(lockKey('invoice:<id>'), ['42'])).toBe('invoice:42');
    const labelled = keyOfMethod(lockKey('invoice:<id>'), {
      decorator: '@Locked',
      label: 'Billing.settle',
      parameters,
    })(['42']);
    expect(labelled).toEqual({ key: 'invoice:42', template: 'invoice:<id>' });
  });

  it('is made by a function, as text or labelled', () => {
    expect(keyOf((id: string) => `invoice:${id}`, ['42'])).toBe('invoice:42');
    expect(keyOf((id: string) => ({ key: id, template: '<id>' }), ['42'])).toBe('42');
  });

  it.each([
    ['undefined', undefined],
    ['null', null],
    ['an empty string', ''],
    ['NaN', NaN],
    ['Infinity', Infinity],
    ['an object', {}],
    ['an object with toString', { toString: () => '1' }],
    ['an array', ['1']],
    ['a symbol', Symbol('x')],
  ])('C115: is refused for %s, with the template and the part', (_, value) => {
    expect(() => keyOf('invoice:<id>', [value])).toThrow(
      expect.objectContaining({
        code: 'LOCK_KEY_INVALID',
        message: expect.stringContaining('"invoice:<id>"'),
      }),
    );
    expect(() => keyOf('invoice:<id>', [value])).toThrow(/<id>/);
  });

  it.each([
    ['0', 0, '0'],
    ['a bigint', 12n, '12'],
    ['false', false, 'false'],
    ['a number like the same text', 1, '1'],
  ])('C115: takes %s', (_, value, text) => {
    expect(keyOf('<id>', [value])).toBe(text);
  });

  it('is refused when a property is missing on the way', () => {
    expect(() => keyOf('<invoice.customer.id>', ['', {}])).toThrow(/<invoice\.customer\.id>/);
  });

  it.each([
    ['an array', () => ['a', 'b']],
    ['undefined', () => undefined],
    ['a number', () => 7],
    ['a promise', () => Promise.resolve('a')],
  ])('is refused when its function returns %s', (_, source) => {
    expect(() => keyOf(source as unknown as KeySource, [])).toThrow(
      expect.objectContaining({
        code: 'LOCK_KEY_INVALID',
        message: expect.stringContaining('Billing.settle'),
      }),
    );
  });

  it('C024: names the method, the template, the known parameters and what works under a minifier', () => {
    const unknown = (): string => keyOf('invoice:<nr>', []);
    expect(unknown).toThrow(expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }));
    expect(unknown).toThrow(
      /Billing\.settle.*"invoice:<nr>".*<id>, <invoice>, <2>.*<0>.*function.*minifier/s,
    );
  });

  it('refuses to guess when the source cannot be read, and still takes positions', () => {
    const unread = { decorator: '@Locked', label: 'Billing.settle', parameters: undefined };
    expect(() => keyOfMethod('<id>', unread)).toThrow(/cannot be read.*<0>/);
    expect(keyOfMethod('<0>', unread)(['x'])).toEqual({ key: 'x', template: '<0>' });
  });

  it('refuses a rest parameter and a position that is not there', () => {
    expect(() => keyOf('<others>', [], [...parameters, rest])).toThrow(/collects several arguments.*<0>/);
    expect(() => keyOf('<3>', [])).toThrow(/has 3 parameters/);
    expect(keyOf('<4>', ['', '', '', '', 'x'], [...parameters, rest])).toBe('x');
  });

  it('says where a template that cannot be read stands', () => {
    expect(() => keyOf('invoice:{id}', [])).toThrow(/@Locked on Billing\.settle: .*"\{"/);
  });
});
