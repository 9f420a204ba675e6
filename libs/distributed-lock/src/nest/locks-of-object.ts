import { LockConfigInvalidError, type LockService } from '../core/index.js';
import type { MethodSite } from './locked-site.js';
import { isStaticOwner } from './method-source.js';
import { LOCKS_PROPERTY, STANDALONE_LOCKS } from './tokens.js';

/** Objects that several applications of one process share: a class with static methods, a `useValue`. */
class SharedBetween {
  constructor(readonly services: readonly LockService[]) {}
}

interface Bound {
  [LOCKS_PROPERTY]?: LockService | SharedBetween;
}

const standalone = globalThis as { [STANDALONE_LOCKS]?: LockService };
const retired = new WeakSet<LockService>();

/**
 * Makes room for the service on instances of `prototype`: Nest assigns it, and it neither shows up when an instance is
 * printed or compared nor stands in the way of a subclass.
 */
export function hideLocksOn(prototype: object): void {
  Object.defineProperty(prototype, LOCKS_PROPERTY, {
    configurable: true,
    set(this: object, locks: LockService) {
      putLocks(this, locks);
    },
  });
}

/**
 * Gives an object that Nest does not inject into, or a class with static methods, its application's service.
 *
 * @throws {LockConfigInvalidError} the object is frozen
 */
export function bindLocks(target: object, locks: LockService, label: string): void {
  const present = ownLocks(target);
  if (present.includes(locks)) return;
  if (!Object.isExtensible(target)) {
    throw new LockConfigInvalidError(
      `${label} is locked, and its object is frozen, so it cannot be given the LockService. ` +
        'Provide it with useClass, or do not freeze it.',
    );
  }
  const others = present.filter((other) => !retired.has(other));
  putLocks(target, others.length > 0 ? new SharedBetween([...others, locks]) : locks);
}

/** After its application has closed, a service no longer makes a shared object ambiguous. */
export function retireLocks(locks: LockService): void {
  retired.add(locks);
}

/** For `LockTesting`: serves objects that Nest did not make. Undefined ends that. */
export function serveStandalone(locks: LockService | undefined): void {
  standalone[STANDALONE_LOCKS] = locks;
}

/**
 * The service of the application that `self` belongs to.
 *
 * @throws {LockConfigInvalidError} there is none, or more than one: the method does not run without its lock
 */
export function locksFor(site: MethodSite, self: unknown): LockService {
  const bound = isObject(self) ? (self as Bound)[LOCKS_PROPERTY] : undefined;
  if (bound && !(bound instanceof SharedBetween)) return bound;
  if (bound) return theLiveOne(site, bound);
  if (!isInstanceOf(self, site.owner)) throw unbound(site);
  const locks = standalone[STANDALONE_LOCKS];
  if (locks) return locks;
  throw outsideNest(site);
}

function theLiveOne(site: MethodSite, { services }: SharedBetween): LockService {
  const live = services.filter((locks) => !retired.has(locks));
  const [only = services.at(-1)] = live;
  if (only && live.length < 2) return only;
  throw new LockConfigInvalidError(
    `${site.label} belongs to ${live.length} running applications of this process, so it is not clear whose lock to ` +
      'take. It did not run; make it a method of a provider, of which each application has its own.',
  );
}

function putLocks(target: object, value: LockService | SharedBetween): void {
  Object.defineProperty(target, LOCKS_PROPERTY, { value, configurable: true, writable: true });
}

function ownLocks(target: object): readonly LockService[] {
  const bound = Object.getOwnPropertyDescriptor(target, LOCKS_PROPERTY)
    ?.value as Bound[typeof LOCKS_PROPERTY];
  if (bound === undefined) return [];
  return bound instanceof SharedBetween ? bound.services : [bound];
}

function isObject(value: unknown): value is object {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}

function isInstanceOf(self: unknown, owner: object): boolean {
  return self === owner || (isObject(self) && Object.prototype.isPrototypeOf.call(owner, self));
}

function unbound({ decorator, label, name }: MethodSite): LockConfigInvalidError {
  return new LockConfigInvalidError(
    `${label} was called without its object, so ${decorator} could not do its part, and it did not run. ` +
      `Pass () => this.${String(name)}(…) instead of this.${String(name)}.`,
  );
}

function outsideNest({ decorator, label, owner }: MethodSite): LockConfigInvalidError {
  const missing = isStaticOwner(owner)
    ? 'its class is no provider of a running Nest application. List the class under "providers"'
    : 'its object was made with "new" outside Nest, or calls it in its own constructor. Let Nest make the object, ' +
      'and call it after construction';
  return new LockConfigInvalidError(
    `${label} has ${decorator}, and there is no LockService for it: ${missing}; in a test, write LockTesting.install(). It did not run.`,
  );
}
