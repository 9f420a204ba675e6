import { minifySync, transformSync } from '@swc/core';

/** An application whose only locked method is keyed by `key`; it prints the keys that were locked, or why it did not boot. */
function application(key: string): string {
  return `
    import 'reflect-metadata';
    import { Injectable, Module } from '@nestjs/common';
    import { NestFactory } from '@nestjs/core';
    import { currentLease, DistributedLockModule, Locked, memoryStore } from 'nestjs-distributed-lock';

    @Injectable()
    class BillingService {
      @Locked(${key})
      async settle(invoiceId: string): Promise<string> {
        return currentLease()!.key + ' for ' + invoiceId;
      }
    }

    @Module({ imports: [DistributedLockModule.forRoot({ store: memoryStore() })], providers: [BillingService] })
    class AppModule {}

    try {
      const app = await NestFactory.createApplicationContext(AppModule, { logger: false, abortOnError: false });
      console.log(await app.get(BillingService).settle('42'));
      await app.close();
    } catch (error) {
      console.log(error.code, error.message);
    }
  `;
}

/** The same, as a bundler would ship it: parameters and classes renamed. */
export function minifiedApplication(key: string): string {
  const { code } = transformSync(application(key), {
    swcrc: false,
    module: { type: 'es6' },
    jsc: {
      target: 'es2022',
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
    },
  });
  return minifySync(code, {
    module: true,
    compress: true,
    mangle: { toplevel: true, keep_classnames: false },
  }).code;
}
