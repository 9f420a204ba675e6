import { transformSync } from '@swc/core';
import * as library from 'nestjs-distributed-lock';
import { LockTesting } from 'nestjs-distributed-lock/testing';

interface Billing {
  settle(invoiceId: string, amount: number): Promise<string | undefined>;
}

/** Two modules as a bundler ships them: mangled, compressed, and each with a class of the same short name. */
function minified(className: string, template: string): { new (): Billing; prototype: Billing } {
  const source = `
    const { Locked, currentLease } = require('nestjs-distributed-lock');
    class ${className} {
      @Locked('${template}', { waitMs: 0 })
      async settle(invoiceId, amount) { await undefined; return amount && currentLease()?.key; }
    }
    exports.made = ${className};
  `;
  const { code } = transformSync(source, {
    swcrc: false,
    minify: true,
    module: { type: 'commonjs' },
    jsc: {
      target: 'es2022',
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true },
      minify: { compress: true, mangle: { toplevel: true } },
    },
  });
  expect(code).not.toMatch(/settle\(invoiceId/);
  const exported: { made?: { new (): Billing; prototype: Billing } } = {};
  // eslint-disable-next-line @typescript-eslint/no-implied-eval -- runs what a bundler made
  new Function('require', 'exports', 'module', code)(() => library, exported, { exports: exported });
  return exported.made as { new (): Billing; prototype: Billing };
}

describe('C024: minified code', () => {
  beforeEach(() => void LockTesting.install());
  afterEach(() => LockTesting.uninstall());

  it('locks by position, and never by a class name that another class has too', async () => {
    const Billing = minified('BillingService', 'invoice:<0>');
    const Refund = minified('RefundService', 'invoice:<0>');
    expect(Billing.name).toBe(Refund.name);
    await expect(new Billing().settle('42', 7)).resolves.toBe('invoice:42');
    const release = await LockTesting.holdElsewhere('invoice:42');
    await expect(new Refund().settle('42', 7)).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await expect(new Refund().settle('43', 7)).resolves.toBe('invoice:43');
    await release();
  });

  it('is refused while it is loaded when a template names a parameter that was renamed', () => {
    expect(() => minified('BillingService', 'invoice:<invoiceId>')).toThrow(
      /<invoiceId>, which is no parameter of it.*a position such as <0>.*minifier/s,
    );
  });
});
