export { zookeeperStore } from './zookeeper-store.js';
export type { ZooKeeperStoreOptions } from './zookeeper-options.js';
export type { ZkAuth } from './zk-packets.js';
