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
 * Opens what the module's option `idempotency` describes; without it, nothing.
 *
 * @throws {LockConfigInvalidError} an option makes no sense
 */
export async function openIdempotency(locks: LockService, setting: IdempotencySetting): Promise<void> {
  const { idempotency, namespace, scope, clock } = setting;
  if (!idempotency) return;
  const { store: source, defaults, encryption, caller, onEvent, purgeEveryMs = HOUR_MS } = idempotency;
  const store = storeOf(source);
  const service = new IdempotencyService({
    store,
    fences: locks.fences,
    defaults,
    encryption,
    onEvent,
    namespace,
    scope,
    clock,
  });
  requireDurationMs('idempotency.purgeEveryMs', purgeEveryMs, { atLeast: 1, infinite: true });
  await service.open();
  if (!store.purgesItself && purgeEveryMs !== Infinity) service.purgeEvery(purgeEveryMs, locks);
  apps.set(locks, { service, caller });
}

function storeOf(source: IdempotencyModuleOptions['store'] | undefined): IdempotencyStore {
  const store: unknown = typeof source === 'function' ? source() : source;
  if (typeof store === 'object' && store !== null && 'claim' in store) return store as IdempotencyStore;
  throw new LockConfigInvalidError(
    'DistributedLockModule: idempotency.store is no idempotency store; write what memoryIdempotencyStore(), ' +
      'redisIdempotencyStore({ url }) or typeormIdempotencyStore({ dataSource }) returns. A lock store is another thing.',
  );
}
