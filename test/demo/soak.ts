import { describeWithServers, startPostgres, startRedis } from '../servers/index.js';
import { COMPILE_TIMEOUT_MS, compileDemo, LARGEST_FILE, withDemo } from './demo-run.js';
import { expectToAddUp } from './expect-account.js';

/** `npm run demo:soak`: ten seeds on each kind of store. SOAK_SEED says where to begin; otherwise somewhere new. */
const FIRST_SEED = Number(process.env['SOAK_SEED'] ?? Math.floor(Math.random() * 1_000_000));
const SEEDS = Array.from({ length: 10 }, (_, i) => String(FIRST_SEED + i));
const RUN_TIMEOUT_MS = 180_000;

const embedded = { url: undefined, stop: () => Promise.resolve() };

describe.each([
  ['embedded SQLite', [], () => Promise.resolve(embedded)],
  ['Redis', ['redis'], startRedis],
  ['PostgreSQL', ['postgres'], startPostgres],
] as const)('the demo on %s', (_, kinds, start) => {
  describeWithServers([...kinds], 'seed after seed', () => {
    let server: { readonly url: string | undefined; stop(): Promise<void> };
    beforeAll(async () => {
      compileDemo();
      server = await start();
    }, COMPILE_TIMEOUT_MS);
    afterAll(() => server.stop());

    it.each(SEEDS)(
      'charges every invoice once with seed %s',
      (seed) => {
        const store = server.url === undefined ? [] : ['--store', server.url];
        const args = ['--input', LARGEST_FILE, ...store, '--seed', seed, '--json'];
        return withDemo(args, async (run) => {
          await expectToAddUp(run, LARGEST_FILE);
          expect(run.account).toMatchObject({ pauses: 10, kills: 5 });
        });
      },
      RUN_TIMEOUT_MS,
    );
  });
});
