export type { RedlockStoreOptions } from './redlock-options.js';
export { redlockStore } from './redlock-store.js';
