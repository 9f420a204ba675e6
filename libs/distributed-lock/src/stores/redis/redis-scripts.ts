import { script } from '../../redis-server/index.js';

/**
 * Every answer is made of words and decimal strings: clients turn Redis integers into numbers, strings or bigints as they
 * are configured, and Lua turns large numbers into exponents or rounds them.
 *
 * A grant is `owner id` in KEYS[1] until it expires. An empty owner id is a key that was kept after its release.
 */

/**
 * KEYS: owner, fence. ARGV: owner id, ttl in ms, retention of the fence in ms.
 *
 * Answers `granted` and the token, or `busy` and the remaining ms. The token is the last one plus one, or the server's
 * clock in microseconds when that is more: it rises even when Redis has lost the last one.
 */
export const ACQUIRE = script(`
  local holder = redis.call('GET', KEYS[1])
  if holder and holder ~= ARGV[1] then
    local remaining = redis.call('PTTL', KEYS[1])
    if remaining == -1 then return {'foreign', 'it holds a value that never expires'} end
    return {'busy', string.format('%.0f', remaining)}
  end
  local last = redis.call('GET', KEYS[2])
  local known = tonumber(last or '0')
  if not known then return {'foreign', 'its fence holds something that is no number'} end
  local token = last
  if not (holder and last) then
    local time = redis.call('TIME')
    local next = math.max(known + 1, time[1] * 1000000 + time[2])
    if not (next <= 9007199254740991) then return {'foreign', 'its fence is beyond 2^53'} end
    token = string.format('%.0f', next)
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
  return {'granted', token}
`);

/**
 * KEYS: owners. ARGV: owner id and ttl in ms for each. Answers `renewed` or `lost` for each, in order.
 *
 * A key that holds something else is lost for its holder, and no reason to leave the others without an answer.
 */
export const RENEW = script(`
  local answers = {}
  for i, key in ipairs(KEYS) do
    answers[i] = 'lost'
    if redis.pcall('GET', key) == ARGV[2 * i - 1] then
      redis.call('PEXPIRE', key, ARGV[2 * i])
      answers[i] = 'renewed'
    end
  end
  return answers
`);

/**
 * KEYS: owner. ARGV: owner id, how long the key stays taken in ms, channel. Answers `released` or `not-owner`.
 *
 * Who may not publish may still release: waiters then ask by themselves.
 */
export const RELEASE = script(`
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'not-owner' end
  if ARGV[2] == '0' then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', ARGV[3], '')
  else
    redis.call('SET', KEYS[1], '', 'PX', ARGV[2])
  end
  return 'released'
`);
