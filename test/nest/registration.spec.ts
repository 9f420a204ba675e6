import { setTimeout as sleep } from 'node:timers/promises';

import { Controller, Get, Inject, Injectable, Module, Param, type DynamicModule } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  DistributedLockModule,
  LockContext,
  Locked,
  LockEvents,
  LockService,
  memoryStore,
  type ApplicationEvent,
  type DistributedLockOptions,
  type DistributedLockOptionsFactory,
} from 'nestjs-distributed-lock';
import request from 'supertest';

@Injectable()
class Billing {
  tokenInInit: number | undefined;

  constructor(private readonly context: LockContext) {}

  @Locked('invoice:<id>')
  async settle(id: string): Promise<string> {
    return Promise.resolve(`${id} under ${this.context.lease()?.qualifiedKey}`);
  }

  @Locked('report:<0>', { store: 'reports' })
  async report(_id: string): Promise<string | undefined> {
    return Promise.resolve(this.context.lease()?.store);
  }

  @Locked('boot')
  async onModuleInit(): Promise<void> {
    this.tokenInInit = this.context.token;
    return Promise.resolve();
  }
}

@Controller('invoices')
class Invoices {
  constructor(private readonly billing: Billing) {}

  @Get(':id')
  async settle(@Param('id') id: string): Promise<string> {
    return this.billing.settle(id);
  }
}

/** Imports the module bare, as a feature module may. */
@Module({
  imports: [DistributedLockModule],
  controllers: [Invoices],
  providers: [Billing],
  exports: [Billing],
})
class BillingModule {}

function options(): DistributedLockOptions {
  return {
    store: memoryStore(),
    stores: { reports: () => memoryStore() },
    namespace: 'test',
    defaults: { waitMs: 50 },
  };
}

@Injectable()
class Settings implements DistributedLockOptionsFactory {
  createLockOptions(): DistributedLockOptions {
    return options();
  }
}

@Module({ providers: [Settings], exports: [Settings] })
class SettingsModule {}

const REGISTRATIONS: readonly [string, () => DynamicModule][] = [
  ['forRoot', () => DistributedLockModule.forRoot(options())],
  [
    'forRootAsync with a factory that takes 100 ms',
    () =>
      DistributedLockModule.forRootAsync({
        imports: [SettingsModule],
        inject: [Settings],
        useFactory: async (settings: Settings) => {
          await sleep(100);
          return settings.createLockOptions();
        },
      }),
  ],
  ['forRootAsync with useClass', () => DistributedLockModule.forRootAsync({ useClass: Settings })],
  [
    'forRootAsync with useExisting',
    () => DistributedLockModule.forRootAsync({ imports: [SettingsModule], useExisting: Settings }),
  ],
];

function appWith(...imports: NonNullable<DynamicModule['imports']>): Promise<TestingModule> {
  return Test.createTestingModule({ imports }).compile();
}

describe.each(REGISTRATIONS)('C120: an application registered by %s', (_, registration) => {
  it('locks, and knows its lease, its stores and its events', async () => {
    const module = await appWith(BillingModule, registration());
    const app = await module.createNestApplication().init();
    const events: ApplicationEvent[] = [];
    app.get(LockEvents).subscribe((event) => events.push(event));
    const billing = app.get(Billing);

    await expect(billing.settle('42')).resolves.toBe('42 under test:invoice:42');
    await expect(billing.report('7')).resolves.toBe('reports');
    expect(billing.tokenInInit).toBeGreaterThan(0);
    expect(events.map(({ type, template }) => `${type} ${template}`)).toEqual([
      'acquired invoice:<id>',
      'released invoice:<id>',
      'acquired report:<0>',
      'released report:<0>',
    ]);
    await app.close();
  });

  it('answers a busy key with 423, after the default waiting time', async () => {
    const module = await appWith(BillingModule, registration());
    const app = await module.createNestApplication({ logger: false }).init();
    const lease = await app.get(LockService).acquire('invoice:42');

    const busy = await request(app.getHttpServer()).get('/invoices/42');
    await lease.release();
    expect(busy.status).toBe(423);
    expect(Number(busy.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    await request(app.getHttpServer()).get('/invoices/42').expect(200, '42 under test:invoice:42');
    await app.close();
  });
});

describe('the parts of the module', () => {
  it('are there for every module, without an import', async () => {
    @Injectable()
    class Anywhere {
      constructor(
        readonly locks: LockService,
        @Inject(LockContext) readonly context: LockContext,
        readonly events: LockEvents,
      ) {}
    }
    @Module({ providers: [Anywhere] })
    class AnywhereModule {}
    const module = await appWith(AnywhereModule, DistributedLockModule.forRoot(options()));
    expect(module.get(Anywhere, { strict: false })).toMatchObject({
      locks: expect.any(LockService),
      context: expect.any(LockContext),
      events: expect.any(LockEvents),
    });
    await module.close();
  });
});
