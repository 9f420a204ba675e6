import { setTimeout as sleep } from 'node:timers/promises';

import { describeWithServers, startPostgres, startRedis, type TestServer } from '../servers/index.js';
import { COMPILE_TIMEOUT_MS, compileDemo, LARGEST_FILE, SAMPLE, withDemo } from './demo-run.js';
import { expectRepetitionsToBeAnswered, expectToAddUp } from './expect-account.js';
import { leftInPostgres } from './leftovers.js';

/** Seconds, and minutes on a busy machine. */
const RUN_TIMEOUT_MS = 600_000;
const AWAY_MS = 2_500;

describe.each([
  ['redis', startRedis, 'pause'],
  ['postgres', startPostgres, 'kill'],
] as const)('the demo with %s', (kind, start, faults) => {
  describeWithServers([kind], 'on a real server', () => {
    let server: TestServer;
    beforeAll(async () => {
      compileDemo();
      server = await start();
    }, COMPILE_TIMEOUT_MS);
    afterAll(() => server.stop());

    it(
      'charges every invoice once while each message comes twice and workers are paused and killed',
      () =>
        withDemo(['--input', LARGEST_FILE, '--store', server.url, '--seed', '5', '--json'], async (run) => {
          await expectToAddUp(run, LARGEST_FILE);
          expectRepetitionsToBeAnswered(run);
          expect(run.account).toMatchObject({ pauses: 10, kills: 5 });
        }),
      RUN_TIMEOUT_MS,
    );

    it(
      'goes on when the server is killed in the middle and comes back',
      () =>
        withDemo(['--store', server.url, '--faults', faults, '--seed', '6', '--json'], async (run) => {
          await run.underWay();
          await server.kill();
          const settledBefore = run.settled;
          await sleep(AWAY_MS);
          await server.start();
          await expectToAddUp(run, SAMPLE);
          expect(settledBefore).toBeLessThan(run.account.invoices);
        }),
      RUN_TIMEOUT_MS,
    );

    if (kind === 'postgres') {
      it('has left nothing in the database', async () => {
        expect(await leftInPostgres(server.url)).toEqual([]);
      });
    }
  });
});
