import { isObservable } from 'rxjs';

import { LockConfigInvalidError } from '../../core/index.js';

/**
 * Passes on what a method came to, unless that only begins to do something when it is read, which would be after the record
 * says that it is done. Files and streams of bytes are let through: they are sent once, and never kept.
 *
 * @throws {LockConfigInvalidError} says what to return instead; the method has run
 */
export function requireOneValue(value: unknown, label: string): unknown {
  if (typeof value !== 'object' || value === null || !isLazy(value)) return value;
  throw new LockConfigInvalidError(
    `@Idempotent on ${label}: it came to a stream, which cannot be kept and given again. The method has run, and what it ` +
      'returned was dropped; return one value, e.g. await lastValueFrom(…).',
    { outcome: 'unknown' },
  );
}

function isLazy(value: object): boolean {
  const isOfBytes = 'pipe' in value || 'getReader' in value;
  return isObservable(value) || (Symbol.asyncIterator in value && !isOfBytes);
}
