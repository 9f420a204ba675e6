export { runFencedCall } from './fenced-calls.js';
export {
  type DataSourceGuard,
  type GuardOptions,
  guardDataSource,
  guardedDataSources,
  guardOf,
  guardsOfLease,
} from './guard-data-source.js';
export { RolledBackAtCommitError } from './rolled-back-at-commit.js';
export type { Isolation } from './transactions.js';
export { Unfenced, unfenced } from './unfenced.js';
