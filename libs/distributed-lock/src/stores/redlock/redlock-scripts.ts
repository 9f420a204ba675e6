import { script } from '../../redis-server/index.js';

/**
 * Every server has one hash for itself, KEYS[1] of all scripts but the release:
 *
 * - `servers`: of how many servers it is one. Only with it does the server vote; a server that has lost its data has lost it
 *   too, and answers `outside`.
 * - `high`: no fence here was ever higher. A fence that is missing begins above it.
 * - `longestMs`: no lease here was ever longer.
 * - `joining`: in place of the others while the server waits to vote again. A new value for each loss of data.
 *
 * A grant is an owner id in KEYS[2] until it expires. An empty owner id is a key that was kept after its release. The fence,
 * KEYS[3], never falls: each owner id that takes KEYS[2] raises it.
 *
 * Answers are made of words and decimal strings: clients turn Redis integers into numbers, strings or bigints as they are
 * configured, and Lua turns large numbers into exponents or rounds them.
 */
const PRELUDE = `
  local function text(number) return string.format('%.0f', number) end
  local function micros()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
  end
  local node = redis.call('HMGET', KEYS[1], 'servers', 'high', 'longestMs', 'joining')
  local function note(token, ttlMs)
    if token > tonumber(node[2]) then redis.call('HSET', KEYS[1], 'high', text(token)) end
    if ttlMs > tonumber(node[3]) then redis.call('HSET', KEYS[1], 'longestMs', text(ttlMs)) end
  end
`;

const MEMBERS_ONLY = `${PRELUDE}
  if node[1] ~= ARGV[1] then return {'outside', node[1] or ''} end
`;

/**
 * ARGV: servers, owner id, ttl in ms, retention of the fence in ms.
 *
 * Answers `granted`, the fence and `new` or `again`; or `busy`, the owner and the remaining ms. Sent again while the owner has
 * the key, it answers the same fence; sent again after that, it raises it once more.
 */
export const GRANT = script(`${MEMBERS_ONLY}
  local holder = redis.call('GET', KEYS[2])
  if holder and holder ~= ARGV[2] then
    local remaining = redis.call('PTTL', KEYS[2])
    if remaining == -1 then return {'foreign', 'it holds a value that never expires'} end
    return {'busy', holder, text(remaining)}
  end
  local last = redis.call('GET', KEYS[3])
  local fence = tonumber(last or '0')
  if not fence then return {'foreign', 'its fence holds something that is no number'} end
  if not last then fence = math.max(tonumber(node[2]), micros()) end
  if not (holder and last) then fence = fence + 1 end
  if not (fence <= 9007199254740991) then return {'foreign', 'its fence is beyond 2^53'} end
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  redis.call('SET', KEYS[3], text(fence), 'PX', ARGV[4])
  note(fence, tonumber(ARGV[3]))
  return {'granted', text(fence), (holder and last) and 'again' or 'new'}
`);

/**
 * ARGV: servers, owner id, token, retention of the fence in ms.
 *
 * Answers `raised` if the fence is the token now and the key is the owner's, else `refused`. A fence that is higher already
 * tells of another owner in between: then the key belongs to a second grant of ours, which has nothing to do with the token.
 */
export const RAISE = script(`${MEMBERS_ONLY}
  if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'refused'} end
  local fence = tonumber(redis.call('GET', KEYS[3]) or 'none')
  local token = tonumber(ARGV[3])
  if not fence or fence > token then return {'refused'} end
  redis.call('SET', KEYS[3], text(token), 'PX', ARGV[4])
  note(token, 0)
  return {'raised'}
`);

/**
 * KEYS: the server's hash, then owners. ARGV: servers, then owner id and ttl in ms for each. Answers `renewed` or `lost` for
 * each, in order. A key that holds something else is lost for its holder, and no reason to leave the others without an answer.
 */
export const RENEW = script(`${MEMBERS_ONLY}
  local answers = {}
  for i = 2, #KEYS do
    answers[i - 1] = 'lost'
    if redis.pcall('GET', KEYS[i]) == ARGV[2 * i - 2] then
      redis.call('PEXPIRE', KEYS[i], ARGV[2 * i - 1])
      note(0, tonumber(ARGV[2 * i - 1]))
      answers[i - 1] = 'renewed'
    end
  end
  return answers
`);

/**
 * KEYS: owner. ARGV: owner id, how long the key stays taken in ms, channel for those who wait for it
 * (or nothing). Answers `released` or
 * `not-owner`; also a server that does not vote forgets the owner.
 */
export const RELEASE = script(`
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'not-owner'} end
  if ARGV[2] == '0' then
    redis.call('DEL', KEYS[1])
    if ARGV[3] ~= '' then redis.pcall('PUBLISH', ARGV[3], '') end
  else
    redis.call('SET', KEYS[1], '', 'PX', ARGV[2])
  end
  return {'released'}
`);

/**
 * ARGV: a new random id. Answers `member`, servers, highest fence and longest ttl; or `joining`, the id under which the server
 * waits (the given one, if nobody has seen it empty before) and its clock in microseconds.
 */
export const LOOK = script(`${PRELUDE}
  if node[1] then return {'member', node[1], node[2], node[3]} end
  local id = node[4] or ARGV[1]
  redis.call('HSET', KEYS[1], 'joining', id)
  return {'joining', id, text(micros())}
`);

/**
 * ARGV: servers, the id under which the server waits, highest fence and longest ttl of the others. Answers `member`, or
 * `changed` if the server has lost its data since it was given that id.
 */
export const ADMIT = script(`${PRELUDE}
  if node[1] then return {'member'} end
  if node[4] ~= ARGV[2] then return {'changed'} end
  redis.call('HSET', KEYS[1], 'servers', ARGV[1], 'high', ARGV[3], 'longestMs', ARGV[4])
  redis.call('HDEL', KEYS[1], 'joining')
  return {'member'}
`);
