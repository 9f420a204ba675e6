export { consulStore } from './consul-store.js';
export type { ConsulStoreOptions } from './consul-options.js';
export type { ConsulTls } from './consul-client.js';
