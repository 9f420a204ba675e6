export { etcdStore } from './etcd-store.js';
export type { EtcdStoreOptions } from './etcd-options.js';
export type { EtcdCredentials, EtcdTls } from './gateway.js';
