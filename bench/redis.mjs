// Acquire and release on an idle key, against the least that any lock on Redis can do: SET NX PX and a compare-and-delete.
import { randomBytes } from 'node:crypto';

import { Redis } from 'ioredis';
import { LockService } from 'nestjs-distributed-lock';
import { redisStore } from 'nestjs-distributed-lock/redis';

import { compare, report } from './measure.mjs';
import { startRedis } from './redis-server.mjs';

const COMPARE_AND_DELETE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

const server = await startRedis();
const client = new Redis(server.port, '127.0.0.1');
const locks = new LockService({ stores: { default: redisStore({ client }) } });
client.defineCommand('bareRelease', { numberOfKeys: 1, lua: COMPARE_AND_DELETE });

const rates = await compare({
  'bare SET NX PX': async () => {
    const owner = randomBytes(16).toString('hex');
    await client.set('bare', owner, 'PX', 15_000, 'NX');
    await client.bareRelease('bare', owner);
  },
  'withLock (token, deadline, renewal)': () => locks.withLock('bench', () => undefined),
});
report('Redis, one caller, idle key', rates, 'bare SET NX PX');

const before = await scriptsRun();
for (let i = 0; i < 100; i += 1) await locks.withLock('bench', () => undefined);
console.log(`\nRedis commands per acquire and release: ${((await scriptsRun()) - before) / 100}`);

await locks.close();
await client.quit();
await server.stop();

/** Scripts that clients asked for; what a script calls inside the server is not a command on the wire. */
async function scriptsRun() {
  const info = await client.info('commandstats');
  return [...info.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce(
    (sum, [, calls]) => sum + Number(calls),
    0,
  );
}
