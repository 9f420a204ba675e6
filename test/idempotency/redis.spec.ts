import { redisIdempotencyStore } from 'nestjs-distributed-lock/redis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { itConforms } from './run-conformance.js';

describeWithServers(['redis'], 'the idempotency store on Redis', () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.stop());

  itConforms(() => ({
    connect: () => Promise.resolve(redisIdempotencyStore({ url: server.url })),
    purgesItself: true,
  }));
});
