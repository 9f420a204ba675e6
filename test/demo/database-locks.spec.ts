import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describeOnMySqlKin, describeWithServers, startPostgres, type TestServer } from '../servers/index.js';
import { COMPILE_TIMEOUT_MS, compileDemo } from './demo-run.js';
import { expectToAddUpOn } from './few-faults.js';
import { leftInMySql, leftInPostgres } from './leftovers.js';

/** Seconds, and minutes on a busy machine. */
const RUN_TIMEOUT_MS = 600_000;
const SENTENCE =
  'charges every invoice once while messages come twice and workers are paused, killed and left without answers';

const folder = mkdtempSync(join(tmpdir(), 'demo-spec-'));
beforeAll(() => compileDemo(), COMPILE_TIMEOUT_MS);
afterAll(() => rmSync(folder, { recursive: true }));

describeWithServers(['postgres'], 'the demo with advisory locks of PostgreSQL', () => {
  let server: TestServer;
  beforeAll(async () => void (server = await startPostgres()));
  afterAll(() => server.stop());

  it(
    `${SENTENCE}, and leaves nothing behind`,
    async () => {
      await expectToAddUpOn(server.url.replace('postgres:', 'postgres+advisory:'), folder);
      expect(await leftInPostgres(server.url)).toEqual([]);
    },
    RUN_TIMEOUT_MS,
  );
});

describeOnMySqlKin('the demo with', ({ start }) => {
  let server: TestServer;
  beforeAll(async () => void (server = await start()));
  afterAll(() => server.stop());

  it.each([
    ['locks in a table', 'mysql:'],
    ['GET_LOCK', 'mysql+getlock:'],
  ])(
    `with %s ${SENTENCE}, and leaves nothing behind`,
    async (_, scheme) => {
      await expectToAddUpOn(server.url.replace('mysql:', scheme), folder);
      expect(await leftInMySql(server.url)).toEqual([]);
    },
    RUN_TIMEOUT_MS,
  );
});
