export { createLeaseTable } from './lease-table.js';
export { storedKey } from './stored-key.js';
export { typeormStore, type TypeOrmStoreOptions } from './typeorm-store.js';
