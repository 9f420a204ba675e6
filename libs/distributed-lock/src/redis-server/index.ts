export { checkServer, readInfo, requireUsable, type ServerInfo, type ServerTerms } from './boot-check.js';
export { linkTo, linkToPlace, type RedisAccess, type RedisAddress, type RedisPlace } from './link-to.js';
export {
  messageOf,
  type ClusterMaster,
  type RedisClient,
  type RedisLink,
  type RedisPipeline,
  type RedisSubscriber,
} from './redis-client.js';
export { redisKeys, requireKeyPrefix, type RedisKeys } from './redis-keys.js';
export { ReleaseWatch } from './release-watch.js';
export { script, type RedisScript } from './redis-script.js';
export { ScriptRunner, type ConfirmedReply } from './script-runner.js';
