import { LockConfigInvalidError, requireDurationMs, type Clock, type LockService } from '../../core/index.js';
import { IdempotencyService, type IdempotencyStore } from '../../idempotency/index.js';
import type { CallerOfRequest, IdempotencyModuleOptions } from './idempotent-options.js';

/** What one application has for `@Idempotent`. */
export interface AppIdempotency {
  readonly service: IdempotencyService;
  readonly caller: CallerOfRequest | undefined;
}

/** The options of the module that matter here. */
export interface IdempotencySetting {
  readonly idempotency?: IdempotencyModuleOptions;
  readonly namespace?: string;
  readonly scope?: () => string | undefined;
  readonly clock?: Clock;
}

const HOUR_MS = 60 * 60 * 1_000;

const APPS = Symbol.for('nestjs-distributed-lock/idempotency-of-app');
const shared = globalThis as { [APPS]?: WeakMap<LockService, AppIdempotency> };

/** By the application's LockService, which reaches every object with one of our decorators. */
const apps = (shared[APPS] ??= new WeakMap<LockService, AppIdempotency>());

export function idempotencyOf(locks: LockService): AppIdempotency | undefined {
  return apps.get(locks);
}

/**
 * Opens what the module's option `idempotency` describes, and has it purge; without it, nothing.
 *
 * @throws {LockConfigInvalidError} an option makes no sense
 */
export async function openIdempotency(locks: LockService, setting: IdempotencySetting): Promise<void> {
  if (!setting.idempotency) return;
  const { purgeEveryMs = HOUR_MS } = setting.idempotency;
  requireDurationMs('idempotency.purgeEveryMs', purgeEveryMs, { atLeast: 1, infinite: true });
  const service = provideIdempotency(locks, setting, setting.idempotency);
  await service.open();
  service.purgeEvery(purgeEveryMs, locks);
}

/** For `LockTesting` as well, which opens nothing. */
export function provideIdempotency(
  locks: LockService,
  { namespace, scope, clock }: IdempotencySetting,
  { store, defaults, encryption, caller, onEvent }: IdempotencyModuleOptions,
): IdempotencyService {
  const service = new IdempotencyService({
    store: storeOf(store),
    fences: locks.fences,
    defaults,
    encryption,
    onEvent,
    namespace,
    scope,
    clock,
  });
  apps.set(locks, { service, caller });
  return service;
}

function storeOf(source: IdempotencyModuleOptions['store'] | undefined): IdempotencyStore {
  const store: unknown = typeof source === 'function' ? source() : source;
  if (typeof store === 'object' && store !== null && 'claim' in store) return store as IdempotencyStore;
  throw new LockConfigInvalidError(
    'DistributedLockModule: idempotency.store is no idempotency store; write what memoryIdempotencyStore(), ' +
      'redisIdempotencyStore({ url }) or typeormIdempotencyStore({ dataSource }) returns. A lock store is another thing.',
  );
}
