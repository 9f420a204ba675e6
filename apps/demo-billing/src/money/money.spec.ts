import { decimalsOf } from './currencies.js';
import { formatMoney, parseMoney, totals } from './money.js';

describe('money', () => {
  it.each([
    ['12.50', 'EUR', 1250n],
    ['12.5', 'EUR', 1250n],
    ['12', 'EUR', 1200n],
    ['0.01', 'EUR', 1n],
    ['0012.50', 'EUR', 1250n],
    ['1980', 'JPY', 1980n],
    ['1.005', 'KWD', 1005n],
    ['0.0001', 'CLF', 1n],
    ['9999999999999999.99', 'USD', 999999999999999999n],
    ['90071992547409.93', 'USD', 9007199254740993n],
  ])('reads %s %s as %d minor units', (amount, currency, amountMinor) => {
    expect(parseMoney(amount, currency)).toEqual({ amountMinor, currency });
  });

  it.each([
    ['-1.00', 'EUR', 'amount', 'not more than zero'],
    ['0', 'EUR', 'amount', 'not more than zero'],
    ['0.00', 'EUR', 'amount', 'not more than zero'],
    ['-0', 'EUR', 'amount', 'not more than zero'],
    ['1.001', 'EUR', 'amount', 'too many decimals: EUR has 2'],
    ['1.0', 'JPY', 'amount', 'too many decimals: JPY has 0'],
    ['1.0001', 'KWD', 'amount', 'too many decimals: KWD has 3'],
    ['', 'EUR', 'amount', 'not an amount'],
    ['1,50', 'EUR', 'amount', 'not an amount'],
    ['1.', 'EUR', 'amount', 'not an amount'],
    ['.5', 'EUR', 'amount', 'not an amount'],
    ['+1', 'EUR', 'amount', 'not an amount'],
    ['1e3', 'EUR', 'amount', 'not an amount'],
    ['0x10', 'EUR', 'amount', 'not an amount'],
    [' 1', 'EUR', 'amount', 'not an amount'],
    ['NaN', 'EUR', 'amount', 'not an amount'],
    ['١٢', 'EUR', 'amount', 'not an amount'],
    ['10000000000000000.00', 'EUR', 'amount', 'too large'],
    ['1.00', 'eur', 'currency', 'not an ISO 4217'],
    ['1.00', 'XXX', 'currency', 'not an ISO 4217'],
    ['1.00', 'XAU', 'currency', 'not an ISO 4217'],
    ['1.00', '', 'currency', 'not an ISO 4217'],
    ['1.00', 'toString', 'currency', 'not an ISO 4217'],
  ])('refuses "%s" "%s" because of its %s', (amount, currency, part, message) => {
    expect(() => parseMoney(amount, currency)).toThrow(
      expect.objectContaining({ part, message: expect.stringContaining(message) }),
    );
  });

  it.each([
    [1250n, 'EUR', '12.50 EUR'],
    [5n, 'EUR', '0.05 EUR'],
    [0n, 'KWD', '0.000 KWD'],
    [1980n, 'JPY', '1980 JPY'],
    [-5n, 'EUR', '-0.05 EUR'],
    [9007199254740993n, 'USD', '90071992547409.93 USD'],
  ])('writes %d minor units of %s as %s', (amountMinor, currency, text) => {
    expect(formatMoney({ amountMinor, currency })).toBe(text);
  });

  it('adds up per currency, beyond what a float can hold', () => {
    const sums = totals([
      { amountMinor: 9007199254740993n, currency: 'USD' },
      { amountMinor: 1n, currency: 'JPY' },
      { amountMinor: 2n, currency: 'USD' },
    ]);
    expect([...sums]).toEqual([
      ['USD', 9007199254740995n],
      ['JPY', 1n],
    ]);
  });

  it('knows the currencies of the world by their decimals', () => {
    const decimals = ['EUR', 'JPY', 'KWD', 'CLF', 'ISK', 'HUF', 'TND', 'MRU'].map(decimalsOf);
    expect(decimals).toEqual([2, 0, 3, 4, 0, 2, 3, 2]);
  });
});
