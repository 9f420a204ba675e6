import { setTimeout as pause } from 'node:timers/promises';

import { LockService } from 'nestjs-distributed-lock';
import type { DataSource } from 'typeorm';

import { startCounting } from '../conformance/counting.js';
import { expectLossLearned, startHolder, type Holder } from '../conformance/holder.js';
import { succeed } from '../conformance/succession.js';
import { until } from '../servers/eventually.js';
import { describeWithServers, type TestServer } from '../servers/index.js';
import { sessionLockKinds } from './session-lock-kinds.js';

const TTL_MS = 2_000;

describe.each(sessionLockKinds)('processes with $title', (kind) => {
  describeWithServers([kind.server], 'and their troubles', () => {
    let server: TestServer;
    let raw: DataSource;
    let successor: LockService;
    let holder: Holder | undefined;

    beforeAll(async () => {
      server = await kind.start();
      raw = await kind.dataSource(server.port).initialize();
      const store = kind.store(kind.dataSource(server.port));
      successor = new LockService({ stores: { default: store } });
      await successor.open();
    });
    afterEach(() => holder?.kill());
    afterAll(async () => {
      await successor.close(0);
      await raw.destroy();
      await server.stop();
    });

    it('a holder that is killed is succeeded within its ttl and a second (C126)', async () => {
      holder = started();
      await holder.stopped();
      holder.kill();
      await (await succeed(successor, 'k', TTL_MS)).release();
    });

    it('a holder that is stopped is succeeded within its ttl and a second, and learns of its loss at the first read (C003)', async () => {
      holder = started();
      await holder.stopped();
      expect(await locks()).toBe(1);
      const next = await succeed(successor, 'k', TTL_MS);
      expect(await locks()).toBe(1); // the stopped process's connection was ended, and its lock with it
      await expectLossLearned(holder, next);
    });

    it('that count under one lock lose nothing when the server is killed and comes back, and none ends badly', async () => {
      const counting = startCounting({ place: kind.place(server) }, { callers: 3, increments: 4 });
      let ended = false;
      const watched = counting.ended.finally(() => (ended = true));
      await until('ten were inside', () => counting.sections() >= 10 || ended);
      await server.kill();
      await pause(500);
      await server.start();
      await watched;
      counting.expectExact();
      counting.remove();
    });

    function started(): Holder {
      return startHolder({ place: kind.place(server), key: 'k', ttlMs: TTL_MS });
    }

    async function locks(): Promise<number> {
      const [row] = await raw.query<{ n: number }[]>(kind.countLocks);
      return Number(row?.n);
    }
  });
});
