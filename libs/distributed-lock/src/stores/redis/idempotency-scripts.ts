import { script } from './redis-scripts.js';

/**
 * A record is one hash, KEYS[1], that lives as long as the record; its lease is a field, since a record that vanished with
 * its lease would have forgotten that somebody had begun.
 *
 * `state` is running, done, abandoned or absent: the last keeps the count of failed attempts. Answers are made of words and
 * decimal strings, for the reasons given with the scripts of the lock.
 */
const PRELUDE = `
  local time = redis.call('TIME')
  local nowUs = time[1] * 1000000 + time[2]
  local nowMs = math.floor(nowUs / 1000)
  local function text(number) return string.format('%.0f', number) end
`;

/** ARGV: owner, fingerprint, lease in ms, keep in ms, whether to take over (1 or 0), most attempts, label. */
export const CLAIM = script(`${PRELUDE}
  local fields = { 'state', 'owner', 'fence', 'attempt', 'fingerprint', 'leaseEndsMs', 'takenOver' }
  local found = redis.call('HMGET', KEYS[1], unpack(fields))
  local state, owner, attempt = found[1], found[2], tonumber(found[4] or '0')
  local fence = math.max(tonumber(found[3] or '0') + 1, nowUs)
  local leaseEndsMs, keepMs = text(nowMs + ARGV[3]), text(ARGV[3] + ARGV[4])
  local takenOver = '0'

  if not state and redis.call('EXISTS', KEYS[1]) == 1 then return { 'foreign' } end
  if state == 'running' and owner == ARGV[1] then
    redis.call('HSET', KEYS[1], 'leaseEndsMs', leaseEndsMs)
    redis.call('PEXPIRE', KEYS[1], keepMs)
    return { 'claimed', found[3], found[4], found[7] }
  end
  if state and state ~= 'absent' then
    if found[5] ~= ARGV[2] and string.sub(found[5], 1, 2) == string.sub(ARGV[2], 1, 2) then return { 'mismatch' } end
    if state == 'done' then
      local result = redis.call('HMGET', KEYS[1], 'outcome', 'codec', 'body')
      return { 'done', result[1], result[2], result[3] }
    end
    if state == 'abandoned' then return { 'abandoned' } end
    local remainingMs = found[6] - nowMs
    if remainingMs > 0 then return { 'running', text(remainingMs) } end
    if ARGV[5] == '0' or attempt >= tonumber(ARGV[6]) then
      redis.call('HSET', KEYS[1], 'state', 'abandoned')
      redis.call('HDEL', KEYS[1], 'owner', 'leaseEndsMs')
      redis.call('PEXPIRE', KEYS[1], keepMs)
      return { 'abandoned' }
    end
    takenOver = '1'
  end
  redis.call('HSET', KEYS[1], 'state', 'running', 'owner', ARGV[1], 'fence', text(fence), 'attempt', attempt + 1,
    'fingerprint', ARGV[2], 'leaseEndsMs', leaseEndsMs, 'takenOver', takenOver, 'label', ARGV[7])
  redis.call('PEXPIRE', KEYS[1], keepMs)
  return { 'claimed', text(fence), text(attempt + 1), takenOver }
`);

/** ARGV: owner, lease in ms, keep in ms. Answers `renewed` or `lost`. */
export const RENEW = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'owner')
  if found[1] ~= 'running' or found[2] ~= ARGV[1] then return 'lost' end
  redis.call('HSET', KEYS[1], 'leaseEndsMs', text(nowMs + ARGV[2]))
  redis.call('PEXPIRE', KEYS[1], text(ARGV[2] + ARGV[3]))
  return 'renewed'
`);

/** ARGV: owner, ending, attempts not to count (1 or 0), keep in ms, outcome, codec, body. Answers `settled` or `refused`. */
export const SETTLE = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'owner', 'attempt')
  if found[2] ~= ARGV[1] then return 'refused' end
  if found[1] == 'done' and ARGV[2] == 'done' then return 'settled' end
  if found[1] ~= 'running' then return 'refused' end
  local attempt = found[3] - ARGV[3]
  if ARGV[2] == 'done' then
    redis.call('HSET', KEYS[1], 'state', 'done', 'outcome', ARGV[5], 'codec', ARGV[6], 'body', ARGV[7])
    redis.call('HDEL', KEYS[1], 'leaseEndsMs')
  elseif ARGV[2] == 'abandoned' then
    redis.call('HSET', KEYS[1], 'state', 'abandoned')
    redis.call('HDEL', KEYS[1], 'owner', 'leaseEndsMs')
  elseif ARGV[2] == 'lapsed' then
    redis.call('HSET', KEYS[1], 'leaseEndsMs', '0', 'attempt', attempt)
    redis.call('HDEL', KEYS[1], 'owner')
    return 'settled'
  elseif attempt > 0 then
    redis.call('HSET', KEYS[1], 'state', 'absent', 'attempt', attempt)
    redis.call('HDEL', KEYS[1], 'owner', 'leaseEndsMs', 'fingerprint')
  else
    redis.call('DEL', KEYS[1])
    return 'settled'
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return 'settled'
`);

/** ARGV: keep in ms, outcome, codec, body. Answers `resolved` or `refused`. */
export const RESOLVE = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'leaseEndsMs')
  local lapsed = found[1] == 'running' and tonumber(found[2]) <= nowMs
  if not lapsed and found[1] ~= 'abandoned' then return 'refused' end
  redis.call('HSET', KEYS[1], 'state', 'done', 'outcome', ARGV[2], 'codec', ARGV[3], 'body', ARGV[4])
  redis.call('HDEL', KEYS[1], 'owner', 'leaseEndsMs')
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 'resolved'
`);

/** Answers `forgotten`, `running` or `absent`. */
export const FORGET = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'leaseEndsMs')
  if not found[1] then return 'absent' end
  if found[1] == 'running' and tonumber(found[2]) > nowMs then return 'running' end
  redis.call('DEL', KEYS[1])
  return 'forgotten'
`);

/** Answers nothing, or state, attempt, fence, fingerprint, label, remaining lease in ms, remaining time in ms, and the result. */
export const READ = script(`${PRELUDE}
  local fields = { 'state', 'attempt', 'fence', 'fingerprint', 'label', 'leaseEndsMs', 'outcome', 'codec', 'body' }
  local found = redis.call('HMGET', KEYS[1], unpack(fields))
  if not found[1] then return {} end
  local leaseMs = text((found[6] or nowMs) - nowMs)
  local expiresInMs = text(redis.call('PTTL', KEYS[1]))
  return { found[1], found[2], found[3], found[4] or '', found[5], leaseMs, expiresInMs,
    found[7] or '', found[8] or '', found[9] or '' }
`);
