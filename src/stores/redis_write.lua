-- One fenced write: compares the mark, checks what could fail, then changes
-- data and mark. Redis takes nothing back, so nothing is changed before the
-- last check.
--
-- KEYS  1 ledger, then the keys of the data: all in one slot
-- ARGV  1 resource  2 token  3 owner  4 source  5 number of the write, 0: none
--       6 '1': keys without a mark may be adopted, then the steps; each is
--       a verb, the index of its key, how many words follow, the words:
--
--   fence    the hash's own fence must not be above the token
--   shared   the key may be there although the resource has no mark yet
--   present  the key must be there         absent  it must not
--   if       op, operand, '1': only where the key is there [, field]
--   do       a command's name and its words after the key
--   get      fields to read
--
-- A mark is "token owner number used source"; used is 0 until the first write.
local ledger, resource, owner, source = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
local token, number = tonumber(ARGV[2]), tonumber(ARGV[5])
local most = 9007199254740991

local known = redis.call('HMGET', ledger,
  '\0format', '\0retired ' .. source, resource)
if not known[1] then
  return {'blank'}
end
if known[1] ~= '1' then
  return {'format', known[1]}
end
if known[2] then
  return {'retired', known[2]}
end
local marked = known[3]
local last, used = 0, '0'
if marked then
  local mark, holder, n, u, bound =
    string.match(marked, '^(%d+) (%x+) (%d+) ([01]) (%S+)$')
  if not mark or tonumber(mark) > most then
    return {'damaged'}
  end
  if bound ~= source then
    return {'source', bound}
  end
  if token < tonumber(mark) then
    return {'stale', mark}
  end
  used = u
  if token == tonumber(mark) then
    if holder ~= owner then
      return {'twice', mark}
    end
    last = tonumber(n)
    if number > 0 and number <= last then
      return {'repeated'}
    end
  end
end

-- Nothing when it worked; else the error, and nothing has changed.
local function remember(n, u)
  local text = string.format('%.0f', token) .. ' ' .. owner .. ' '
    .. string.format('%.0f', n) .. ' ' .. u .. ' ' .. source
  if text ~= marked then
    local went = redis.pcall('HSET', ledger, resource, text)
    if type(went) == 'table' and went.err then
      return went
    end
  end
end

-- Refused, but the grant is a newer one: that stays known.
local function refuse(...)
  return remember(last, used) or {...}
end

local steps = {}
local at = 7
while at <= #ARGV do
  local words = {}
  for i = 1, tonumber(ARGV[at + 2]) do
    words[i] = ARGV[at + 2 + i]
  end
  steps[#steps + 1] = {ARGV[at], KEYS[tonumber(ARGV[at + 1])], words}
  at = at + 3 + #words
end

local kinds = {} -- what a key holds, the commands before included
local function kind_of(key)
  if not kinds[key] then
    kinds[key] = redis.call('TYPE', key).ok
  end
  return kinds[key]
end
local function may_be(key, kind)
  return kind_of(key) == kind or kind_of(key) == 'none'
end

-- Rows first: a fence decides before anything else does.
local fenced = {} -- and those that other resources may have made
local writes = false
for i, step in ipairs(steps) do
  local verb, key = step[1], step[2]
  writes = writes or verb == 'do'
  if verb == 'shared' then
    fenced[key] = true
  elseif verb == 'fence' then
    if not may_be(key, 'hash') then
      return {'kind', i, kind_of(key)}
    end
    local fence = redis.call('HGET', key, 'fence_token')
    if fence then
      if not string.find(fence, '^%d+$') or tonumber(fence) > most then
        return {'fence', i}
      end
      if tonumber(fence) > token then
        return {'behind', i, fence}
      end
      fenced[key] = true
    end
  end
end
if used == '0' and ARGV[6] ~= '1' then
  for _, step in ipairs(steps) do
    local key = step[2]
    if step[1] == 'do' and not fenced[key] and kind_of(key) ~= 'none' then
      return {'unmarked', key}
    end
  end
end

-- A number as `set` writes them. Lua alone would take '0x10' for one.
local function as_number(text)
  return string.find(text, '^%-?%d+%.?%d*[eE]?[+-]?%d*$') and tonumber(text)
end
local compare = {
  eq = function(a, b) return a == b end,
  ne = function(a, b) return a ~= b end,
  ge = function(a, b) local n = as_number(a) return n and n >= tonumber(b) end,
  le = function(a, b) local n = as_number(a) return n and n <= tonumber(b) end,
  gt = function(a, b) local n = as_number(a) return n and n > tonumber(b) end,
  lt = function(a, b) local n = as_number(a) return n and n < tonumber(b) end,
}

-- A verdict when the condition does not hold or cannot be looked at.
local function check_condition(i, key, words)
  local op, operand, only_there, field = unpack(words)
  if only_there == '1' and kind_of(key) == 'none' then
    return nil
  end
  local stored
  if field then
    if not may_be(key, 'hash') then
      return {'kind', i, kind_of(key)}
    end
    stored = redis.call('HGET', key, field)
  elseif op == 'null' or op == 'there' then
    stored = kind_of(key) ~= 'none'
  else
    if not may_be(key, 'string') then
      return {'kind', i, kind_of(key)}
    end
    stored = redis.call('GET', key)
  end
  local good
  if op == 'null' then
    good = not stored
  elseif op == 'there' then
    good = stored
  else
    good = stored and compare[op](stored, operand)
  end
  if not good then
    return refuse('failed', i)
  end
end

local touched = {} -- keys, and fields of keys, that a command changes
local function check_sum(i, key, field, stored, n)
  if touched[key] or (field and touched[key .. '\0' .. field]) then
    return {'order', i}
  end
  stored = stored or '0'
  if stored ~= '0' and not string.find(stored, '^%-?[1-9]%d*$') then
    return {'number', i}
  end
  local before = tonumber(stored)
  if math.abs(before) > most or math.abs(before + tonumber(n)) > most then
    return {'range', i}
  end
end

local lengths = {} -- of strings, the commands before included
-- GETBIT has APPEND's limit (proto-max-bulk-len; before Redis 7 always 512 MiB),
-- and changes nothing.
local function check_append(i, key, text)
  local length = (lengths[key] or redis.call('STRLEN', key)) + #text
  lengths[key] = length
  local last_bit = string.format('%.0f', math.max(length - 1, 0) * 8)
  local looked = redis.pcall('GETBIT', key, last_bit)
  if type(looked) == 'table' and string.find(looked.err, 'bit offset', 1, true)
  then
    return {'size', i}
  end
end

local wanted = {
  SET = 'string', APPEND = 'string', INCRBY = 'string',
  HSET = 'hash', HDEL = 'hash', HINCRBY = 'hash',
  LPUSH = 'list', RPUSH = 'list', LPOP = 'list', RPOP = 'list',
  SADD = 'set', SREM = 'set', ZADD = 'zset', ZREM = 'zset',
}

local function check_command(i, key, words)
  local name = words[1]
  local kind = wanted[name]
  if kind and not may_be(key, kind) then
    return {'kind', i, kind_of(key)}
  end
  local bad
  if name == 'INCRBY' then
    bad = check_sum(i, key, nil, redis.call('GET', key), words[2])
  elseif name == 'HINCRBY' then
    local now = not touched[key] and redis.call('HGET', key, words[2])
    bad = check_sum(i, key, words[2], now, words[3])
  elseif name == 'APPEND' then
    bad = check_append(i, key, words[2])
  end
  -- Older servers tell of missing rights only when they refuse.
  if not bad and redis.acl_check_cmd
      and not redis.acl_check_cmd(name, key, unpack(words, 2)) then
    bad = {'forbidden', i, name}
  end
  if kind == 'hash' then
    for field = 2, #words, name == 'HDEL' and 1 or 2 do
      touched[key .. '\0' .. words[field]] = true
    end
  else
    touched[key] = true
  end
  if name == 'DEL' then
    kinds[key], lengths[key] = 'none', 0
  elseif kind and kind_of(key) == 'none' then
    kinds[key] = kind
  end
  if name == 'SET' then
    lengths[key] = #words[2]
  elseif name == 'INCRBY' then
    lengths[key] = 17 -- a sign and the digits of 2^53
  end
  return bad
end

for i, step in ipairs(steps) do
  local verb, key, words = step[1], step[2], step[3]
  local bad
  if verb == 'present' and kind_of(key) == 'none' then
    bad = refuse('missing', i)
  elseif verb == 'absent' and kind_of(key) ~= 'none' then
    bad = refuse('taken', i)
  elseif verb == 'if' then
    bad = check_condition(i, key, words)
  elseif verb == 'get' and not may_be(key, 'hash') then
    bad = {'kind', i, kind_of(key)}
  elseif verb == 'do' then
    bad = check_command(i, key, words)
  end
  if bad then
    return bad
  end
end

local bad = remember(number > 0 and number or last, writes and '1' or used)
if bad then
  return bad
end
local answers = {}
local done = false
for i, step in ipairs(steps) do
  local verb, key, words = step[1], step[2], step[3]
  if verb == 'do' then
    local got = redis.pcall(words[1], key, unpack(words, 2))
    if type(got) == 'table' and got.err then
      if done then
        return {'broken', i, got.err}
      end
      if marked then
        redis.call('HSET', ledger, resource, marked)
      else
        redis.call('HDEL', ledger, resource)
      end
      return got
    end
    done = true
    answers[#answers + 1] = type(got) == 'table' and got.ok or got
  elseif verb == 'get' then
    answers[#answers + 1] = redis.call('HMGET', key, unpack(words))
  end
end
return {'done', answers}
