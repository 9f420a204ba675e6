import { NativeTokens, requireTokenOffset } from './native-tokens.js';

describe('tokens of a server that counts', () => {
  it('are its numbers plus the offset', () => {
    expect(new NativeTokens('count', 0).grant(7, 0)).toEqual({ kind: 'granted', token: 7 });
    expect(new NativeTokens('count', 1_000).grant(7, 0)).toEqual({ kind: 'granted', token: 1_007 });
  });

  it('never fall below those that were known when they were asked for, and may overtake each other otherwise', () => {
    const tokens = new NativeTokens('count', 1_000);
    tokens.grant(7, tokens.newest);
    const before = tokens.newest;
    tokens.grant(9, before);
    expect(tokens.grant(8, before)).toEqual({ kind: 'granted', token: 1_008 });
    expect(tokens.newest).toBe(9);
    for (const fallen of [9, 8, 1]) {
      expect(() => tokens.grant(fallen, tokens.newest)).toThrow(/would fall. Set tokenOffset above 1009 /);
    }
  });

  it.each([Number.MAX_SAFE_INTEGER, 2 ** 53, 2 ** 63, 0, -1, NaN, 1.5])(
    'are safe integers: %d with an offset of 1 is refused (C114)',
    (counted) => {
      expect(() => new NativeTokens('count', 1).grant(counted, 0)).toThrow('lower tokenOffset');
    },
  );

  it('have an offset from 0 to the largest safe integer', () => {
    expect(requireTokenOffset(Number.MAX_SAFE_INTEGER)).toBe(Number.MAX_SAFE_INTEGER);
    for (const wrong of [-1, 0.5, 2 ** 53, NaN, Infinity, '5', null]) {
      expect(() => requireTokenOffset(wrong as number)).toThrow(
        expect.objectContaining({ code: 'LOCK_CONFIG_INVALID' }),
      );
    }
  });
});
