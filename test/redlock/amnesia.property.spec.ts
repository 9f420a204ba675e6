import fc from 'fast-check';
import { Redis } from 'ioredis';

import { describeWithServers, startRedis, type RedisServer } from '../servers/index.js';
import { runAmnesia } from './amnesia-world.js';
import { forgottenToken } from './directed-histories.js';
import { faultsOf } from './history.js';
import { stopClocks } from './rounds.js';
import { CLOCK_FLOOR, nameOf, replaced } from './script-texts.js';

const ODDS = { requestLost: 0.05, replyLost: 0.05, sentAgain: 0, keyVanishes: 0.05 };
const WORLDS = 12;
/** Twice as long as a server is kept out. */
const RUN_MS = 11_000;
const MEMBERS_ONLY = `if node[1] ~= ARGV[1] then return {'outside', node[1] or ''} end`;

/** Hundreds of rounds, in each of which the servers answer: seconds, and minutes on a busy machine. */
const LIMIT_MS = 300_000;
jest.setTimeout(LIMIT_MS);

describeWithServers(['redis'], 'tokens of Redlock while servers lose their data', () => {
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

    it('never repeat and never fall, not even without the clocks of the servers', async () => {
      const seeds = fc.sample(fc.nat(), WORLDS);
      const setting = { servers: raw, odds: ODDS, rewrite: withoutClock };
      const outcomes = await runAmnesia(setting, seeds, RUN_MS);
      expect(outcomes.filter(({ faults }) => faults.length > 0)).toEqual([]);
    });

    it('do not either when the only server that two majorities share has lost its data in between', async () => {
      const history = await forgottenToken(raw, withoutClock);
      expect(history).toHaveLength(1);
      expect(faultsOf(history)).toEqual([]);
    });

    it('do so then if such a server votes at once (positive control)', async () => {
      const history = await forgottenToken(raw, withoutMemory);
      expect(faultsOf(history)).toEqual([`duplicate ${history[0]?.token}`]);
    });
  });
});

function withoutClock(text: string): string {
  return nameOf(text) === 'grant' ? replaced(text, CLOCK_FLOOR, 'tonumber(node[2])') : text;
}

function withoutMemory(text: string): string {
  if (!text.includes(MEMBERS_ONLY)) return text;
  const votes = `if not node[1] then
    redis.call('HSET', KEYS[1], 'servers', ARGV[1], 'high', '0', 'longestMs', '0')
    node = {ARGV[1], '0', '0'}
  end`;
  return replaced(withoutClock(text), MEMBERS_ONLY, votes);
}
