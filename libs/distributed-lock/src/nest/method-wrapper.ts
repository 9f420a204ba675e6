import 'reflect-metadata';

import { Inject } from '@nestjs/common';

import { LockConfigInvalidError } from '../core/index.js';
import { labelOf, type MethodSite } from './locked-site.js';
import type { Method } from './locked-typing.js';
import { hideLocksOn } from './locks-of-object.js';
import { LOCKS, LOCKS_PROPERTY } from './tokens.js';

/** @throws {LockConfigInvalidError} the decorator stands on something that is no method */
export function methodBelow(
  decorator: MethodSite['decorator'],
  target: object,
  name: unknown,
  descriptor: PropertyDescriptor | undefined,
): Method {
  const method: unknown = descriptor?.value;
  if (typeof method === 'function' && typeof name !== 'object') return method as Method;
  throw notAMethod(decorator, target, name);
}

/** The application's service reaches the object as any other dependency, so a missing module fails at boot. */
export function injectLocks(prototype: object): void {
  hideLocksOn(prototype);
  Inject(LOCKS)(prototype, LOCKS_PROPERTY);
}

/** A function with everything that others may have hung on the method: name, length, properties and metadata. */
export function inPlaceOf(method: Method, run: (self: unknown, args: unknown[]) => unknown): Method {
  const wrapper = function (this: unknown, ...args: unknown[]): unknown {
    return run(this, args);
  };
  for (const key of Reflect.ownKeys(method)) {
    if (BELONGS_TO_ONE_FUNCTION.has(key)) continue;
    Object.defineProperty(wrapper, key, Object.getOwnPropertyDescriptor(method, key) as PropertyDescriptor);
  }
  for (const key of Reflect.getOwnMetadataKeys(method) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, method), wrapper);
  }
  return wrapper;
}

const BELONGS_TO_ONE_FUNCTION: ReadonlySet<string | symbol> = new Set(['prototype', 'arguments', 'caller']);

const ADVICE = {
  '@Locked': 'can be locked, and this is none. Make it a method, or use LockService.withLock() inside.',
  '@AcceptFencingToken': 'can take a token, and this is none. Make it a method.',
  '@Idempotent':
    'can have one effect and one answer, and this is none. Make it a method, or use IdempotencyService.runOnce() inside.',
} as const;

function notAMethod(
  decorator: MethodSite['decorator'],
  target: object,
  name: unknown,
): LockConfigInvalidError {
  if (typeof name === 'object') {
    return new LockConfigInvalidError(
      `${decorator} is a decorator of the kind that Nest uses: set "experimentalDecorators" in tsconfig.json.`,
    );
  }
  const advice = ADVICE[decorator];
  return new LockConfigInvalidError(
    `${decorator} on ${labelOf(target, name as string | symbol)}: only a method ${advice}`,
  );
}
