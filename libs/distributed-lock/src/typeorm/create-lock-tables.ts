import type { DataSource } from 'typeorm';

import { createFenceTable } from './fence/index.js';
import { createLeaseTable } from './lease-table/index.js';

/**
 * Creates the tables of this package in the database of `dataSource`, for example in a migration: `lock_lease`, which
 * `typeormStore()` keeps leases in, and `lock_fence`, which the guards need wherever an entity is fenced. Harmless when
 * they are there already. Nothing creates them unasked.
 *
 * @throws {LockConfigInvalidError} the database is not supported or in memory, or the name of its schema is not usable
 */
export async function createLockTables(dataSource: DataSource): Promise<void> {
  await createLeaseTable(dataSource);
  await createFenceTable(dataSource);
}
