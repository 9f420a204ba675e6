export { startCommandProxy, type CommandProxy } from './command-proxy.js';
export {
  startConsul,
  startConsulCluster,
  type ConsulServer,
  type ConsulServerOptions,
} from './consul-server.js';
export { describeWithServers } from './describe-with-servers.js';
export { startEtcd, startEtcdCluster, type EtcdServer } from './etcd-server.js';
export { startMariaDb } from './mariadb-server.js';
export { startMySql } from './mysql-server.js';
export { describeOnMySqlKin, mySqlKin, type MySqlKin } from './mysql-kin.js';
export { startPostgres, type PostgresServer } from './postgres-server.js';
export type { TestServer } from './private-server.js';
export { startRedisCluster, type RedisCluster } from './redis-cluster.js';
export { startRedisSentinel, type RedisSentinel } from './redis-sentinel.js';
export { startRedis, type RedisServer, type RedisServerOptions } from './redis-server.js';
export { startProxy, type TcpProxy } from './tcp-proxy.js';
export { startZooKeeper, startZooKeeperEnsemble, zookeeperWord } from './zookeeper-server.js';
export { startStopping, type StoppingProcess } from './stopping-process.js';
