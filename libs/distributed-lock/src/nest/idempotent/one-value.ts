import { isObservable } from 'rxjs';

import { LockConfigInvalidError } from '../../core/index.js';

/**
 * Passes on what a method came to, unless that only begins to do something when it is read, which would be after the record
 * says that it is done. A file of Nest is let through: it is sent once, and never kept.
 *
 * @throws {LockConfigInvalidError} says what to return instead; the method has run
 */
export function requireOneValue(value: unknown, label: string): unknown {
  const isStream =
    typeof value === 'object' && value !== null && (isObservable(value) || Symbol.asyncIterator in value);
  if (!isStream) return value;
  throw new LockConfigInvalidError(
    `@Idempotent on ${label}: it came to a stream, which cannot be kept and given again. The method has run, and what it ` +
      'returned was dropped; return one value, e.g. await lastValueFrom(…).',
    { outcome: 'unknown' },
  );
}
