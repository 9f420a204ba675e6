import type { InjectionToken, ModuleMetadata, OptionalFactoryDependency, Type } from '@nestjs/common';

import {
  LockConfigInvalidError,
  LockService,
  requireDurationMs,
  type Clock,
  type LockDefaults,
  type LockStore,
} from '../core/index.js';
import { openIdempotency, type IdempotencyModuleOptions } from './idempotent/index.js';

/**
 * A store, or a function that makes one. The function is called once for each application, so that two applications of
 * one process made from the same module do not share a store, and closing one leaves the other's open.
 */
export type StoreSource = LockStore | (() => LockStore);

export interface DistributedLockOptions {
  /** Used where no store is named; its name is `default`. E.g. `memoryStore()`, `redisStore({ url })`. */
  readonly store: StoreSource;
  /** Further stores by name, for `@Locked(key, { store: 'name' })`. */
  readonly stores?: Readonly<Record<string, StoreSource>>;
  /** Put before every key, so that two applications can share a server. Default none. */
  readonly namespace?: string;
  /** The tenant of the present call, read for each: it becomes part of every key. Undefined refuses the call. */
  readonly scope?: () => string | undefined;
  readonly defaults?: LockDefaults;
  /** Where `@Idempotent` keeps its records: `{ store: memoryIdempotencyStore() }`. Default: nowhere, so none is allowed. */
  readonly idempotency?: IdempotencyModuleOptions;
  /** At shutdown, how long running work may go on before its leases are given up, in milliseconds. Default 10 000. */
  readonly shutdownGraceMs?: number;
  /** Replaces both clocks and the timers, for tests. */
  readonly clock?: Clock;
}

/** What has to be known before any provider is made. */
export interface StaticLockOptions {
  /** False: errors of locks are not turned into HTTP answers; a filter of yours may use `toHttpException`. Default true. */
  readonly filter?: boolean;
}

/** Makes the options, as a provider. */
export interface DistributedLockOptionsFactory {
  createLockOptions(): DistributedLockOptions | Promise<DistributedLockOptions>;
}

/** Exactly one of the three. */
export interface AsyncLockOptions extends StaticLockOptions, Pick<ModuleMetadata, 'imports'> {
  readonly useFactory?: (
    ...dependencies: never[]
  ) => DistributedLockOptions | Promise<DistributedLockOptions>;
  readonly inject?: readonly (InjectionToken | OptionalFactoryDependency)[];
  readonly useClass?: Type<DistributedLockOptionsFactory>;
  readonly useExisting?: InjectionToken<DistributedLockOptionsFactory>;
}

export const DEFAULT_SHUTDOWN_GRACE_MS = 10_000;

/**
 * The service with its stores open.
 *
 * @throws {LockConfigInvalidError} an option makes no sense
 * @throws {StoreUnavailableError} or whatever a store finds wrong when it first looks at its server
 */
export async function openLocks(options: DistributedLockOptions): Promise<LockService> {
  const locks = new LockService({ ...options, stores: storesOf(options) });
  try {
    await locks.open();
    await openIdempotency(locks, options);
    return locks;
  } catch (error) {
    await locks.close(0);
    throw error;
  }
}

/** @throws {LockConfigInvalidError} names the option and says what to write */
export function checkOptions(options: DistributedLockOptions | undefined): DistributedLockOptions {
  if (!options?.store)
    refuse('store is missing; write forRoot({ store: memoryStore() }), or redisStore({ url })');
  if (options.stores && 'default' in options.stores) {
    refuse(
      'stores.default stands in the way of store, which is the default one; write it there, or rename it',
    );
  }
  if (options.namespace === '') refuse('namespace is empty; leave it out or give it a name');
  requireDurationMs('shutdownGraceMs', options.shutdownGraceMs ?? DEFAULT_SHUTDOWN_GRACE_MS, { atLeast: 0 });
  return options;
}

function storesOf({ store, stores = {} }: DistributedLockOptions): Record<string, LockStore> {
  const sources = Object.entries({ default: store, ...stores });
  return Object.fromEntries(sources.map(([name, source]) => [name, storeOf(name, source)]));
}

function storeOf(name: string, source: StoreSource): LockStore {
  const store: unknown = typeof source === 'function' ? source() : source;
  const isStore = typeof store === 'object' && store !== null && 'tryAcquire' in store;
  if (!isStore)
    refuse(`store "${name}" is no lock store; write what memoryStore() or redisStore({ url }) returns`);
  return store as LockStore;
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(`DistributedLockModule: ${why}.`);
}
