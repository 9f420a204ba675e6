import 'reflect-metadata';

import { LockConfigInvalidError } from '../core/index.js';
import { noteLeaseParameter } from './locked-site.js';

/**
 * Fills a parameter of a `@Locked` method with the lease that the call runs under, whatever the caller passed for it:
 * `settle(id: string, @CurrentLease() lease?: Lease)`. On controllers, message handlers and plain services alike.
 *
 * @throws {LockConfigInvalidError} on a constructor; and at boot on a method that is not locked
 */
export function CurrentLease(): ParameterDecorator {
  return (target, name, index) => {
    if (name === undefined) {
      throw new LockConfigInvalidError(
        '@CurrentLease() belongs to a parameter of a @Locked method: while an object is constructed, no lock is held.',
      );
    }
    noteLeaseParameter(target, name, index);
  };
}
