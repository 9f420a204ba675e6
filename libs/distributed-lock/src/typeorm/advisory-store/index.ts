export { postgresAdvisoryStore, type PostgresAdvisoryStoreOptions } from './postgres-advisory-store.js';
