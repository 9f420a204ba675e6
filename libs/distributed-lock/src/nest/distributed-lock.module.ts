import { Inject, Module, type DynamicModule, type Provider } from '@nestjs/common';
import { APP_FILTER, ModulesContainer } from '@nestjs/core';

import { LockConfigInvalidError, LockService } from '../core/index.js';
import { IdempotencyService } from '../idempotency/index.js';
import { idempotencyOf } from './idempotent/index.js';
import { LockContext } from './lock-context.js';
import { LockEvents } from './lock-events.js';
import { LockExceptionFilter } from './lock-exception.filter.js';
import { LockLifecycle } from './lock-lifecycle.js';
import { LockedProviders } from './locked-providers.js';
import {
  checkOptions,
  openLocks,
  type AsyncLockOptions,
  type DistributedLockOptions,
  type DistributedLockOptionsFactory,
  type StaticLockOptions,
} from './module-options.js';
import { LOCK_OPTIONS, LOCKS } from './tokens.js';

/**
 * Gives an application its locks: `LockService`, `LockContext`, `LockEvents` and what `@Locked` needs, in every module.
 *
 * Registered once, in the root module, with `forRoot` or `forRootAsync`; other modules may import it bare, and need not.
 * Stores are opened at boot, and closed at shutdown after running work has had its grace time.
 */
@Module({})
export class DistributedLockModule {
  /** @throws {LockConfigInvalidError} at boot, when the module is registered twice or nowhere */
  constructor(@Inject(ModulesContainer) modules: ModulesContainer) {
    requireOneRegistration(modules);
  }

  /** @throws {LockConfigInvalidError} at boot, when an option makes no sense */
  static forRoot(options: DistributedLockOptions & StaticLockOptions): DynamicModule {
    // A factory and not the value: Nest 10 prints the values of dynamic modules to tell them apart.
    return registration([{ provide: LOCK_OPTIONS, useFactory: () => checkOptions(options) }], options);
  }

  /** @throws {LockConfigInvalidError} unless there is exactly one of useFactory, useClass and useExisting */
  static forRootAsync(options: AsyncLockOptions): DynamicModule {
    return { ...registration(asyncProviders(options), options), imports: options.imports ?? [] };
  }
}

function registration(options: readonly Provider[], { filter = true }: StaticLockOptions): DynamicModule {
  return {
    module: DistributedLockModule,
    global: true,
    providers: [
      ...options,
      {
        provide: LockService,
        inject: [LOCK_OPTIONS, ModulesContainer],
        useFactory: (given: DistributedLockOptions, modules: ModulesContainer) => {
          requireOneRegistration(modules);
          return openLocks(given);
        },
      },
      { provide: LOCKS, useExisting: LockService },
      {
        // Null without the option `idempotency`: Nest makes every provider, so this one must not fail.
        provide: IdempotencyService,
        inject: [LockService],
        useFactory: (locks: LockService) => idempotencyOf(locks)?.service ?? null,
      },
      {
        provide: LockEvents,
        inject: [LockService],
        useFactory: (locks: LockService) => new LockEvents(locks.events, idempotencyOf(locks)?.service),
      },
      LockContext,
      LockedProviders,
      LockLifecycle,
      ...(filter ? [{ provide: APP_FILTER, useClass: LockExceptionFilter }] : []),
    ],
    exports: [LockService, LOCKS, LockContext, LockEvents, IdempotencyService],
  };
}

function asyncProviders({ useFactory, inject = [], useClass, useExisting }: AsyncLockOptions): Provider[] {
  if ([useFactory, useClass, useExisting].filter(Boolean).length !== 1) {
    throw new LockConfigInvalidError(
      'DistributedLockModule.forRootAsync() needs exactly one of useFactory, useClass and useExisting.',
    );
  }
  if (useFactory) {
    const make = useFactory as (
      ...dependencies: unknown[]
    ) => DistributedLockOptions | Promise<DistributedLockOptions>;
    const checked = async (...dependencies: unknown[]): Promise<DistributedLockOptions> =>
      checkOptions(await make(...dependencies));
    return [{ provide: LOCK_OPTIONS, inject: [...inject], useFactory: checked }];
  }
  const fromFactory = {
    provide: LOCK_OPTIONS,
    inject: [useClass ?? useExisting ?? ''],
    useFactory: async (factory: DistributedLockOptionsFactory) =>
      checkOptions(await factory.createLockOptions()),
  };
  return useClass ? [useClass, fromFactory] : [fromFactory];
}

function requireOneRegistration(modules: ModulesContainer): void {
  const registrations = [...modules.values()].filter((module) => module.providers.has(LOCK_OPTIONS));
  if (registrations.length === 1) return;
  throw new LockConfigInvalidError(
    registrations.length === 0
      ? 'DistributedLockModule is imported, and registered nowhere in this application. ' +
          'Write DistributedLockModule.forRoot({ store }) in the imports of the root module.'
      : `DistributedLockModule is registered ${registrations.length} times in this application. Keep one forRoot() in the ` +
          'root module: it is global, so other modules need nothing, or the bare class. Several stores go into one ' +
          'registration: forRoot({ store, stores: { name: … } }).',
  );
}
