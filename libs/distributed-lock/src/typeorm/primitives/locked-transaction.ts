import type { DataSource, EntityManager } from 'typeorm';

/** Work in a transaction that begins after its lock was taken. */
export type LockedTransaction<T> = (manager: EntityManager) => Promise<T> | T;

/** Takes the lock, begins a transaction, runs `work` in it, ends the transaction, and only then gives the lock back. */
export type AdvisoryLock = <T>(
  dataSource: DataSource,
  key: string,
  timeoutMs: number,
  work: LockedTransaction<T>,
) => Promise<T>;
