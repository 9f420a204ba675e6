import 'reflect-metadata';
import { AsyncLocalStorage } from 'node:async_hooks';

import {
  contextLeases,
  handedOverTokens,
  LockConfigInvalidError,
  type HandedOverToken,
  type Lease,
} from '../../core/index.js';

interface Unfenced {
  readonly reason: string;
  /** What was held or handed over around it. What is begun inside is guarded again. */
  readonly heldAround: ReadonlySet<Lease | HandedOverToken>;
}

const STORAGE = Symbol.for('nestjs-distributed-lock/unfenced');
const shared = globalThis as { [STORAGE]?: AsyncLocalStorage<Unfenced> };
const storage = (shared[STORAGE] ??= new AsyncLocalStorage<Unfenced>());

/**
 * Runs `work`, whose writes to fenced entities are not guarded: for repairs, imports and migrations that no lock
 * protects. Each such write is an event of type `unfenced-write`. A hold begun inside is guarded again.
 *
 * @throws {LockConfigInvalidError} no reason was given
 */
export function unfenced<T>(reason: string, work: () => T): T {
  requireReason(reason);
  return storage.run({ reason, heldAround: new Set(shownHere()) }, work);
}

/**
 * As {@link unfenced}, for a method: `@Unfenced('nightly import')`.
 *
 * @throws {LockConfigInvalidError} no reason was given
 */
export function Unfenced(reason: string): MethodDecorator {
  requireReason(reason);
  return (_target, _name, descriptor: PropertyDescriptor) => {
    const original = descriptor.value as (...args: unknown[]) => unknown;
    descriptor.value = inTheShapeOf(original, function (this: unknown, ...args: unknown[]) {
      return unfenced(reason, () => original.apply(this, args));
    });
  };
}

/** Why writes need no token at this point; undefined where they do. */
export function unfencedReason(): string | undefined {
  const store = storage.getStore();
  return store && shownHere().every((one) => store.heldAround.has(one)) ? store.reason : undefined;
}

function shownHere(): readonly (Lease | HandedOverToken)[] {
  return [...contextLeases(), ...handedOverTokens()];
}

function requireReason(reason: unknown): void {
  if (typeof reason === 'string' && reason.trim() !== '') return;
  throw new LockConfigInvalidError(
    'unfenced() needs a reason: whoever reads the code later will ask for it.',
  );
}

/** Name, length and metadata stay, so that other decorators see the method they expect. */
function inTheShapeOf<F extends (...args: unknown[]) => unknown>(original: object, wrapper: F): F {
  for (const property of ['name', 'length']) {
    Object.defineProperty(wrapper, property, { ...Object.getOwnPropertyDescriptor(original, property) });
  }
  for (const key of Reflect.getOwnMetadataKeys(original) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, original), wrapper);
  }
  return wrapper;
}
