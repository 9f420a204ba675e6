export { checkServer, readInfo, requireUsable, type ServerInfo } from './boot-check.js';
export { linkTo } from './link-to.js';
export { messageOf, type RedisClient, type RedisLink } from './redis-client.js';
export { redisKeys, requireKeyPrefix, type RedisKeys } from './redis-keys.js';
export { script, type RedisScript } from './redis-script.js';
export { ScriptRunner } from './script-runner.js';
