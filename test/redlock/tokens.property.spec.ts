import fc from 'fast-check';
import { Redis } from 'ioredis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { nameOf, NOT_BEYOND, OWNERSHIP, replaced, type Rewrite } from './script-texts.js';
import { runTokens, type Outcome, type Setting } from './tokens-world.js';

const ODDS = { requestLost: 0.15, replyLost: 0.1, sentAgain: 0, keyVanishes: 0.12 };
const RE_SENDS = { ...ODDS, sentAgain: 0.3 };
/** Runs side by side, each on keys of its own, so that servers do not wait for us. */
const TOGETHER = 25;
/** More than enough for every naive scheme: about one run in ten shows it. */
const MOST_CONTROL_RUNS = 600;

/** Schemes that are usually proposed, as mutations of the real scripts. */
const naive: readonly {
  readonly scheme: string;
  readonly rewrite: (text: string, server: number) => string;
}[] = [
  {
    scheme: 'the highest of the counters, written back to nobody',
    rewrite: (text) => (nameOf(text) === 'raise' ? `return {'raised'}` : text),
  },
  {
    scheme: 'the highest of the counters, written back to one server',
    rewrite: (text, server) => (nameOf(text) === 'raise' && server > 0 ? `return {'raised'}` : text),
  },
  { scheme: 'written back without a look at the owner', rewrite: (text) => withoutOwner(text) },
];

describeWithServers(['redis'], 'tokens of Redlock under a timeless adversary', () => {
  describe.each([
    { size: 3, batches: 4 },
    { size: 5, batches: 2 },
  ])('on $size servers', ({ size, batches }) => {
    let servers: RedisServer[];
    let raw: Redis[];

    beforeAll(async () => {
      servers = await Promise.all(Array.from({ length: size }, () => startRedis()));
      raw = servers.map(({ url }) => new Redis(url, { enableAutoPipelining: true }));
    });
    afterAll(async () => {
      for (const client of raw) client.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    });

    it.each([
      ['requests and answers are lost and keys vanish', ODDS],
      ['commands are delivered again at any later time as well', RE_SENDS],
    ])('never repeat and never fall when %s', async (_what, odds) => {
      let acquired = 0;
      const batch = fc.array(fc.nat(), { minLength: TOGETHER, maxLength: TOGETHER });
      const property = fc.asyncProperty(batch, async (seeds) => {
        const outcomes = await runAll({ servers: raw, odds }, seeds);
        for (const outcome of outcomes) acquired += outcome.acquired;
        expect(outcomes.filter(({ faults }) => faults.length > 0)).toEqual([]);
      });
      await fc.assert(property, { numRuns: batches, endOnFailure: true });
      expect(acquired).toBeGreaterThan((TOGETHER * batches) / 2);
    });

    it.each(naive)('do so with $scheme (positive control)', async ({ rewrite }) => {
      const seeds = fc.sample(fc.nat(), MOST_CONTROL_RUNS);
      const faulty: Outcome[] = [];
      for (let i = 0; i < seeds.length && faulty.length === 0; i += TOGETHER) {
        const outcomes = await runAll({ servers: raw, odds: ODDS, rewrite }, seeds.slice(i, i + TOGETHER));
        faulty.push(...outcomes.filter(({ faults }) => faults.length > 0));
      }
      expect(faulty).not.toEqual([]);
    });
  });
});

function runAll(setting: Setting, seeds: readonly number[]): Promise<Outcome[]> {
  return Promise.all(seeds.map((seed) => runTokens(setting, seed)));
}

function withoutOwner(text: string): ReturnType<Rewrite> {
  if (nameOf(text) !== 'raise') return text;
  const unowned = replaced(text, OWNERSHIP, '');
  return replaced(unowned, NOT_BEYOND, `if fence and fence > token then return {'raised'} end`);
}
