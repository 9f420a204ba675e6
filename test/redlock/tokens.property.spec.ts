import fc from 'fast-check';
import { Redis } from 'ioredis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { lateRaises } from './directed-histories.js';
import { faultsOf } from './history.js';
import { stopClocks } from './rounds.js';
import { nameOf, NOT_BEYOND, OWNERSHIP, replaced, type Rewrite } from './script-texts.js';
import { runTokens } from './tokens-world.js';

const ODDS = { requestLost: 0.15, replyLost: 0.1, sentAgain: 0, keyVanishes: 0.12 };
const RE_SENDS = { ...ODDS, sentAgain: 0.3 };
/** Runs side by side, each on keys of its own, so that servers do not wait for us. */
const TOGETHER = 25;
/** More of them where little was acquired. */
const BATCHES = 4;
const MOST_BATCHES = 40;
const ENOUGH = 60;
/** More owners are granted the key while others still write back. */
const CROWDED = { requestLost: 0.05, replyLost: 0, sentAgain: 0, keyVanishes: 0.4 };
/** One run in five shows the fault: not one of so many would, less than once in 10^30 times. */
const MOST_CONTROL_BATCHES = 16;

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

/** Hundreds of rounds, in each of which the servers answer: seconds, and minutes on a busy machine. */
const LIMIT_MS = 300_000;
jest.setTimeout(LIMIT_MS);

describeWithServers(['redis'], 'tokens of Redlock under a timeless adversary', () => {
  describe.each([3, 5])('on %d servers', (size) => {
    let servers: RedisServer[];
    let raw: Redis[];

    beforeAll(async () => {
      servers = await Promise.all(Array.from({ length: size }, () => startRedis()));
      raw = servers.map(({ url }) => new Redis(url, { enableAutoPipelining: true }));
      await Promise.all(raw.map((client) => client.ping()));
    });
    beforeEach(stopClocks);
    afterEach(() => void jest.useRealTimers());
    afterAll(async () => {
      for (const client of raw) client.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    });

    it.each([
      ['requests and answers are lost and keys vanish', ODDS],
      ['commands are delivered again at any later time as well', RE_SENDS],
    ])('never repeat and never fall when %s', async (_what, odds) => {
      let acquired = 0;
      for (let batch = 0; batch < MOST_BATCHES && (batch < BATCHES || acquired < ENOUGH); batch += 1) {
        const outcomes = await runTokens({ servers: raw, odds }, fc.sample(fc.nat(), TOGETHER));
        expect(outcomes.filter(({ faults }) => faults.length > 0)).toEqual([]);
        for (const outcome of outcomes) acquired += outcome.acquired;
      }
      expect(acquired).toBeGreaterThanOrEqual(ENOUGH);
    });

    it('do not either in the one order of commands that is the undoing of weaker schemes', async () => {
      const history = await lateRaises(raw);
      expect(history).toHaveLength(1);
      expect(faultsOf(history)).toEqual([]);
    });

    // The other schemes repeat tokens among owners who come one after another as well, this one only among owners at once.
    it('do so in random runs when they are written back without a look at the owner (positive control)', async () => {
      let faulty = 0;
      for (let batch = 0; batch < MOST_CONTROL_BATCHES && faulty === 0; batch += 1) {
        const setting = { servers: raw, odds: CROWDED, rewrite: withoutOwner };
        const outcomes = await runTokens(setting, fc.sample(fc.nat(), TOGETHER));
        faulty += outcomes.filter(({ faults }) => faults.length > 0).length;
      }
      expect(faulty).toBeGreaterThan(0);
    });

    it.each(naive)('do so with $scheme, in that order (positive control)', async ({ rewrite }) => {
      const history = await lateRaises(raw, rewrite);
      expect(faultsOf(history)).toEqual([`duplicate ${history[0]?.token}`]);
    });
  });
});

function withoutOwner(text: string): ReturnType<Rewrite> {
  if (nameOf(text) !== 'raise') return text;
  const unowned = replaced(text, OWNERSHIP, '');
  return replaced(unowned, NOT_BEYOND, `if fence and fence > token then return {'raised'} end`);
}
