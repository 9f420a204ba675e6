import { LockService } from 'nestjs-distributed-lock';

import { storeAt } from '../conformance/store-at.js';
import { expectLossLearned, startHolder, type Holder } from '../conformance/holder.js';
import { succeed } from '../conformance/succession.js';
import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';

const TTL_MS = 2_000;

describeWithServers(['redis'], 'a process that holds a lock on Redlock and gets into trouble', () => {
  let servers: RedisServer[];
  let successor: LockService;
  let place: string;
  let holder: Holder;

  beforeAll(async () => {
    servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
    place = `redlock:${servers.map(({ url }) => url).join(',')}`;
    successor = new LockService({ stores: { default: storeAt({ place }) } });
    await successor.open();
    await servers[2]?.kill(); // all of it has to work without one of the servers
  });
  beforeEach(() => void (holder = startHolder({ place, key: 'k', ttlMs: TTL_MS })));
  afterEach(() => holder.kill());
  afterAll(async () => {
    await successor.close(0);
    await Promise.all(servers.map((server) => server.stop()));
  });

  it('by SIGKILL is succeeded within its ttl and a second (C126)', async () => {
    await holder.stopped();
    holder.kill();
    await (await succeed(successor, 'k', TTL_MS)).release();
  });

  it('by a stop beyond its ttl learns of its loss at the first read, before it calls anybody (C003)', async () => {
    await holder.stopped();
    const next = await successor.acquire('k', { waitMs: 60_000 });
    await expectLossLearned(holder, next);
  });
});
