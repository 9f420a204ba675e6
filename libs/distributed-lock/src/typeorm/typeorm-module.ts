import {
  Inject,
  Module,
  type DynamicModule,
  type InjectionToken,
  type ModuleMetadata,
  type OnApplicationShutdown,
  type OnModuleInit,
  type OptionalFactoryDependency,
  type Provider,
} from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { DataSource } from 'typeorm';

import { LockConfigInvalidError, LockService } from '../core/index.js';
import { fenceNotes } from './entities/index.js';
import { guardDataSource, guardOf, type GuardOptions } from './guard/index.js';

interface DataSourceChoice {
  /** Name of the DataSource, as given to `TypeOrmModule.forRoot({ name })`. Default: the one without a name. */
  readonly dataSource?: string;
}

export interface TypeOrmGuardOptions extends GuardOptions, DataSourceChoice {}

export interface AsyncTypeOrmGuardOptions extends DataSourceChoice, Pick<ModuleMetadata, 'imports'> {
  readonly useFactory: (...dependencies: never[]) => GuardOptions | Promise<GuardOptions>;
  readonly inject?: readonly (InjectionToken | OptionalFactoryDependency)[];
}

const OPTIONS = Symbol.for('nestjs-distributed-lock/typeorm-options');
/** Nest prints this text when the module is imported bare, so it says what to write. */
const GUARDED = Symbol.for(
  'the DataSource to guard: write DistributedLockTypeOrmModule.forRoot() in the imports of your root module',
);

/**
 * Guards the writes of a DataSource; see `guardDataSource`. Imported in the root module, once for each DataSource that has
 * fenced entities, beside `DistributedLockModule.forRoot()`.
 */
@Module({})
export class DistributedLockTypeOrmModule implements OnModuleInit, OnApplicationShutdown {
  constructor(
    @Inject(GUARDED) private readonly guarded: DataSource,
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
  ) {}

  /** @throws {LockConfigInvalidError} at boot, when entities do not fit their locks or the DataSource has guards already */
  static forRoot({ dataSource, ...options }: TypeOrmGuardOptions = {}): DynamicModule {
    // A factory and not the value: Nest 10 prints the values of dynamic modules to tell them apart.
    return registration(dataSource, { provide: OPTIONS, useFactory: () => options });
  }

  /** As {@link forRoot}, with options that a factory makes. */
  static forRootAsync(options: AsyncTypeOrmGuardOptions): DynamicModule {
    const { dataSource, useFactory, inject = [], imports = [] } = options;
    return {
      ...registration(dataSource, { provide: OPTIONS, inject: [...inject], useFactory }),
      imports,
    };
  }

  /**
   * @throws {LockConfigInvalidError} a DataSource of this application has fenced entities and no guards, or its database
   *   does not refuse stale writes
   */
  async onModuleInit(): Promise<void> {
    for (const { providers } of this.modules.values()) {
      for (const [token, { instance }] of providers) {
        if (instance instanceof DataSource) requireGuarded(token, instance);
      }
    }
    await guardOf(this.guarded)?.fence.proveAtBoot();
  }

  /** Closes the guard's own connection, also where nobody destroys the DataSource. */
  async onApplicationShutdown(): Promise<void> {
    await guardOf(this.guarded)?.fence.close();
  }
}

function registration(name: string | undefined, options: Provider): DynamicModule {
  return {
    module: DistributedLockTypeOrmModule,
    providers: [
      options,
      {
        provide: GUARDED,
        inject: [dataSourceToken(name), LockService, OPTIONS],
        useFactory: (dataSource: DataSource, locks: LockService, given: GuardOptions) => {
          guardDataSource(dataSource, locks, given);
          return dataSource;
        },
      },
    ],
  };
}

/** As @nestjs/typeorm does it, which need not be installed. */
function dataSourceToken(name: string | undefined): InjectionToken {
  return name === undefined || name === 'default' ? DataSource : `${name}DataSource`;
}

function requireGuarded(token: unknown, dataSource: DataSource): void {
  if (!dataSource.isInitialized || guardOf(dataSource)) return;
  const fenced = dataSource.entityMetadatas.find((metadata) => fenceNotes(metadata).fencedBy);
  if (!fenced) return;
  const name = typeof token === 'string' ? token.replace(/DataSource$/, '') : undefined;
  throw new LockConfigInvalidError(
    `Entity ${fenced.name} is fenced, and its DataSource${name ? ` "${name}"` : ''} has no guards. Write ` +
      `DistributedLockTypeOrmModule.forRoot(${name ? `{ dataSource: '${name}' }` : ''}) in the imports of the root module.`,
  );
}
