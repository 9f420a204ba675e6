import { readMethodSource } from './method-source.js';

const symbolName = Symbol('named by a symbol');

class Sample {
  plain(_id: string, _amount: number): void {}
  withDefaults(_id = ')', _text = 'a, b /* no comment */', _fn = (x: number) => x + 1): void {}
  destructured({ a: _a }: { a: string }, [_b]: string[], _last = { c: 1 }): void {}
  commented(/* id, */ _id: string, _next: string /* , more */): void {}
  async asynchronous(_id: string): Promise<void> {}
  async *generated(_id: string): AsyncGenerator<string> {}
  *iterated(_id: string): Generator<string> {}
  'a literal name'(_id: string): void {}
  ['computed literal'](_id: string): void {}
  [symbolName](_id: string): void {}
  collecting(_first: string, ..._rest: string[]): void {}
  static statically(_tenant: string): void {}
  statically(_id: string): void {}
  readonly #secret = 1;
  usingSecret(_id: string): number {
    return this.#secret;
  }
}

function namesOf(owner: object, name: string | symbol, method?: () => unknown): unknown {
  const found = (owner as Record<string | symbol, () => unknown>)[name];
  return readMethodSource({ owner, name, method: method ?? (found as () => unknown) })?.parameters.map(
    ({ name: parameter, rest }) => (rest ? `...${parameter}` : parameter),
  );
}

describe('the source of a method', () => {
  it.each([
    ['plain', ['_id', '_amount']],
    ['withDefaults', ['_id', '_text', '_fn']],
    ['destructured', [null, null, '_last']],
    ['commented', ['_id', '_next']],
    ['asynchronous', ['_id']],
    ['generated', ['_id']],
    ['a literal name', ['_id']],
    ['computed literal', ['_id']],
    ['collecting', ['_first', '..._rest']],
    ['statically', ['_id']],
    ['usingSecret', ['_id']],
  ])('names the parameters of %s', (name, names) => {
    expect(namesOf(Sample.prototype, name)).toEqual(names);
  });

  it('names the parameters of a static method apart from an instance method of the same name', () => {
    expect(namesOf(Sample, 'statically')).toEqual(['_tenant']);
  });

  it('finds a method that is named by a symbol in its own source', () => {
    expect(namesOf(Sample.prototype, symbolName)).toEqual(['_id']);
  });

  it('sees through a decorator that wrapped the method first', () => {
    const wrapped = (...args: unknown[]): unknown => args;
    expect(namesOf(Sample.prototype, 'plain', wrapped)).toEqual(['_id', '_amount']);
    expect(namesOf(Sample.prototype, 'plain', new Proxy(wrapped, {}))).toEqual(['_id', '_amount']);
  });

  it('reads the function itself where there is no class', () => {
    // As a compiler for old targets leaves it.
    const Old = function (): void {} as unknown as { prototype: Record<string, unknown> };
    Old.prototype.settle = function (_id: string, _at = new Date()): void {};
    Old.prototype.cancel = (_id: string): void => {};
    expect(namesOf(Old.prototype, 'settle')).toEqual(['_id', '_at']);
    expect(namesOf(Old.prototype, 'cancel')).toEqual(['_id']);
  });

  it('tells async functions and generators apart', () => {
    const kindOf = (name: keyof Sample): string => {
      const method = Sample.prototype[name] as () => unknown;
      const source = readMethodSource({ owner: Sample.prototype, name, method });
      return `${source?.async ? 'async' : 'sync'} ${source?.generator ? 'generator' : 'function'}`;
    };
    expect(kindOf('plain')).toBe('sync function');
    expect(kindOf('asynchronous')).toBe('async function');
    expect(kindOf('generated')).toBe('async generator');
    expect(kindOf('iterated')).toBe('sync generator');
  });

  it('says nothing about what cannot be read', () => {
    const native = Sample.prototype.plain.bind(new Sample());
    class Empty {}
    expect(readMethodSource({ owner: Empty.prototype, name: 'plain', method: native })).toBeUndefined();
  });
});
