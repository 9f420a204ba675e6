import { script } from '../../redis-server/index.js';

/**
 * A record is one hash, KEYS[1], that lives as long as the record; its lease is a field, since a record that vanished with
 * its lease would have forgotten that somebody had begun.
 *
 * `state` is running, done, abandoned or absent: the last keeps the count of failed attempts. A record has `answer` if and
 * only if it is done: the body; and `how`, outcome and codec with a space between, if it is not the usual one, so that a
 * replay is the bare body. Answers of scripts are made of words and decimal
 * strings, for the reasons given with the scripts of the lock.
 */
const PRELUDE = `
  local time = redis.call('TIME')
  local nowUs = time[1] * 1000000 + time[2]
  local nowMs = math.floor(nowUs / 1000)
  local function text(number) return string.format('%.0f', number) end
`;

/**
 * KEYS: one record for each claim. ARGV: for each one text, since every argument costs: fingerprint (without spaces), owner,
 * lease in ms, keep in ms, whether to take over (1 or 0), most attempts and label, with a space between.
 *
 * One answer for each: of a record that is done its answer, so that a replay costs the server a single look; else a list.
 * A key that holds something else keeps nobody from an answer.
 */
export const CLAIM = script(`
  local nowUs

  local function differs(fingerprint, terms)
    if string.sub(terms, 1, #fingerprint + 1) == fingerprint .. ' ' then return false end
    return string.sub(fingerprint, 1, 2) == string.sub(string.match(terms, '^%S*'), 1, 2)
  end

  local function claim(key, terms)
    local function text(number) return string.format('%.0f', number) end
    local fields = { 'state', 'owner', 'fence', 'attempt', 'fingerprint', 'leaseEndsMs', 'takenOver' }
    if not nowUs then
      local time = redis.call('TIME')
      nowUs = time[1] * 1000000 + time[2]
    end
    local nowMs = math.floor(nowUs / 1000)
    local fingerprint, owner, lease, keep, takeOver, most, label =
      string.match(terms, '^(%S*) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
    local found = redis.call('HMGET', key, unpack(fields))
    local state, attempt = found[1], tonumber(found[4] or '0')
    local fence = math.max(tonumber(found[3] or '0') + 1, nowUs)
    local leaseEndsMs, keepMs = text(nowMs + lease), text(lease + keep)
    local takenOver = '0'

    if not state and redis.call('EXISTS', key) == 1 then return { 'foreign' } end
    if state == 'running' and found[2] == owner then
      redis.call('HSET', key, 'leaseEndsMs', leaseEndsMs)
      redis.call('PEXPIRE', key, keepMs)
      return { 'claimed', found[3], found[4], found[7] }
    end
    if state and state ~= 'absent' then
      if differs(found[5], terms) then return { 'mismatch' } end
      if state == 'abandoned' then return { 'abandoned' } end
      local remainingMs = found[6] - nowMs
      if remainingMs > 0 then return { 'running', text(remainingMs) } end
      if takeOver == '0' or attempt >= tonumber(most) then
        redis.call('HSET', key, 'state', 'abandoned')
        redis.call('HDEL', key, 'owner', 'leaseEndsMs')
        redis.call('PEXPIRE', key, keepMs)
        return { 'abandoned' }
      end
      takenOver = '1'
    end
    redis.call('HSET', key, 'state', 'running', 'owner', owner, 'fence', text(fence), 'attempt', attempt + 1,
      'fingerprint', fingerprint, 'leaseEndsMs', leaseEndsMs, 'takenOver', takenOver, 'label', label)
    redis.call('PEXPIRE', key, keepMs)
    return { 'claimed', text(fence), text(attempt + 1), takenOver }
  end

  local answers = {}
  for i, key in ipairs(KEYS) do
    local found = redis.pcall('HMGET', key, 'answer', 'fingerprint', 'how')
    if found.err then
      answers[i] = { 'foreign', found.err }
    elseif not found[1] then
      answers[i] = claim(key, ARGV[i])
    elseif differs(found[2], ARGV[i]) then
      answers[i] = { 'mismatch' }
    elseif found[3] then
      answers[i] = { 'done', found[1], found[3] }
    else
      answers[i] = found[1]
    end
  end
  return answers
`);

/** ARGV: owner, lease in ms, keep in ms. Answers `renewed` or `lost`. */
export const RENEW = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'owner')
  if found[1] ~= 'running' or found[2] ~= ARGV[1] then return 'lost' end
  redis.call('HSET', KEYS[1], 'leaseEndsMs', text(nowMs + ARGV[2]))
  redis.call('PEXPIRE', KEYS[1], text(ARGV[2] + ARGV[3]))
  return 'renewed'
`);

/** ARGV: owner, ending, attempts not to count (1 or 0), keep in ms, answer, how if not as usual. Answers `settled` or `refused`. */
export const SETTLE = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'owner', 'attempt')
  if found[2] ~= ARGV[1] then return 'refused' end
  if found[1] == 'done' and ARGV[2] == 'done' then return 'settled' end
  if found[1] ~= 'running' then return 'refused' end
  local attempt = found[3] - ARGV[3]
  if ARGV[2] == 'done' then
    redis.call('HSET', KEYS[1], 'state', 'done', 'answer', ARGV[5])
    if ARGV[6] then redis.call('HSET', KEYS[1], 'how', ARGV[6]) end
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

/** ARGV: keep in ms, answer, how if not as usual. Answers `resolved` or `refused`. */
export const RESOLVE = script(`${PRELUDE}
  local found = redis.call('HMGET', KEYS[1], 'state', 'leaseEndsMs')
  local lapsed = found[1] == 'running' and tonumber(found[2]) <= nowMs
  if not lapsed and found[1] ~= 'abandoned' then return 'refused' end
  redis.call('HSET', KEYS[1], 'state', 'done', 'answer', ARGV[2])
  if ARGV[3] then redis.call('HSET', KEYS[1], 'how', ARGV[3]) end
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

/** Answers nothing, or state, attempt, fence, fingerprint, label, remaining lease in ms, remaining time in ms, answer and how. */
export const READ = script(`${PRELUDE}
  local fields = { 'state', 'attempt', 'fence', 'fingerprint', 'label', 'leaseEndsMs', 'answer', 'how' }
  local found = redis.call('HMGET', KEYS[1], unpack(fields))
  if not found[1] then return {} end
  local leaseMs = text((found[6] or nowMs) - nowMs)
  local expiresInMs = text(redis.call('PTTL', KEYS[1]))
  return { found[1], found[2], found[3], found[4] or '', found[5], leaseMs, expiresInMs, found[7] or '', found[8] or '' }
`);
