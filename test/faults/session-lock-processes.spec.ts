import { join } from 'node:path';

import { LockService } from 'nestjs-distributed-lock';
import type { DataSource } from 'typeorm';

import { startCounting } from '../conformance/counting.js';
import type { HolderAnswer, HolderOrder } from '../conformance/holder-process.js';
import { succeed } from '../conformance/succession.js';
import {
  describeWithServers,
  startStopping,
  type StoppingProcess,
  type TestServer,
} from '../servers/index.js';
import { pause, sessionLockKinds, until } from './session-lock-kinds.js';

const TTL_MS = 2_000;
const SCRIPT = join(__dirname, '..', 'conformance', 'holder-process.ts');

describe.each(sessionLockKinds)('processes with $title', (kind) => {
  describeWithServers([kind.server], 'and their troubles', () => {
    let server: TestServer;
    let raw: DataSource;
    let successor: LockService;
    let holder: StoppingProcess<HolderAnswer> | undefined;

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
      holder = startStopping<HolderAnswer>(SCRIPT, orderOf());
      await holder.stopped();
      holder.kill();
      await (await succeed(successor, 'k', TTL_MS)).release();
    });

    it('a holder that is stopped is succeeded within its ttl and a second, and learns of its loss at the first read (C003)', async () => {
      holder = startStopping<HolderAnswer>(SCRIPT, orderOf());
      await holder.stopped();
      expect(await locks()).toBe(1);
      const next = await succeed(successor, 'k', TTL_MS);
      expect(await locks()).toBe(1); // the stopped process's connection was ended, and its lock with it
      const answer = await holder.answer();
      expect(answer).toMatchObject({ firstRead: 'LEASE_LOST', section: 'LEASE_LOST' });
      expect(next.token).toBeGreaterThan(answer.token);
      next.assertHeld();
      expect(await next.release()).toBe('released');
    });

    it('that count under one lock lose nothing when the server is killed and comes back, and none ends badly', async () => {
      const counting = startCounting({ place: kind.place(server) }, { callers: 3, increments: 4 });
      let ended = false;
      const watched = counting.ended.finally(() => (ended = true));
      await until(() => counting.sections() >= 10 || ended, 60_000);
      await server.kill();
      await pause(500);
      await server.start();
      await watched;
      counting.expectExact();
      counting.remove();
    });

    function orderOf(): HolderOrder {
      return { place: kind.place(server), key: 'k', ttlMs: TTL_MS };
    }

    async function locks(): Promise<number> {
      const [row] = await raw.query<{ n: number }[]>(kind.countLocks);
      return Number(row?.n);
    }
  });
});
