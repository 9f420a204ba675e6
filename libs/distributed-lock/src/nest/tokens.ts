/*
 * All from the registry of symbols: with two copies of the package in one process, both mean the same.
 */

/** What `@Locked` asks Nest for. Nest prints this text when no module provides it, so it says what to write. */
export const LOCKS = Symbol.for(
  'the LockService of @Locked: add DistributedLockModule.forRoot({ store }) to the imports of your root module, ' +
    'or LockTesting.module() to those of a test',
);

/** The property through which an object, or a class with static methods, reaches its application's LockService. */
export const LOCKS_PROPERTY = Symbol.for('nestjs-distributed-lock/locks');

/** The options of `forRoot`, as given or as the factory made them. */
export const LOCK_OPTIONS = Symbol.for('nestjs-distributed-lock/options');

/** Metadata of a prototype or class: the methods of its own that are locked. */
export const LOCKED_SITES = Symbol.for('nestjs-distributed-lock/sites');

/** Metadata of a prototype or class: by method, the positions of its `@CurrentLease()` parameters. */
export const LEASE_PARAMETERS = Symbol.for('nestjs-distributed-lock/lease-parameters');

/** Where `LockTesting.install()` puts the service for objects that Nest did not make. */
export const STANDALONE_LOCKS = Symbol.for('nestjs-distributed-lock/standalone');
