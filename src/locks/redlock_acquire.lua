-- Votes for leases: sets each lock that is free, and answers the next value of
-- the counter for it. For many callers at once: a list, an answer for each.
--
-- KEYS  1 counter  2 marker  3 note, then of each caller: lock
-- ARGV  1 marker of this server, then of each caller: value of the lock, its
--       owner first; TTL in ms
--
-- A server whose marker is not the expected one may have forgotten what it
-- granted: it votes for nothing. The note lives as long as its memory does,
-- so whoever waits for the readmission knows that the wait is for this one.
-- A note that nobody has set before: the owner of this attempt.
local answers = {}

local function forgot(marker)
  redis.call('SET', KEYS[3], string.match(ARGV[2], '^%S*'), 'NX')
  local note = redis.call('GET', KEYS[3])
  for i = 1, #KEYS - 3 do
    answers[i] = {'forgot', marker, note}
  end
  return answers
end

local marker = redis.pcall('GET', KEYS[2])
if marker ~= ARGV[1] then
  return forgot(type(marker) == 'table' and '?' or marker or '')
end

-- What fails for one must not end the script: the others have their locks.
local set = {}
for i = 1, #KEYS - 3 do
  local lock = KEYS[3 + i]
  local done =
    redis.pcall('SET', lock, ARGV[2 * i], 'NX', 'PX', ARGV[2 * i + 1])
  if done and done.ok then
    set[#set + 1] = i
  else
    local held = redis.pcall('GET', lock)
    if type(held) == 'string' then
      answers[i] = {'busy', redis.pcall('PTTL', lock), held}
    elseif held and string.find(held.err, 'WRONGTYPE', 1, true) then
      answers[i] = {'foreign'}
    else
      answers[i] = done or held
    end
  end
end
if #set == 0 then
  return answers
end

-- 16 times a value, and a place below 16, is a token: 2^53-1 at most.
local last = redis.pcall('INCRBY', KEYS[1], #set)
local first = type(last) == 'number' and last - #set + 1
local trouble
if not first then
  if string.find(last.err, 'overflow', 1, true) then
    trouble = {'exhausted'}
  elseif string.find(last.err, 'WRONGTYPE', 1, true)
      or string.find(last.err, 'not an integer', 1, true) then
    trouble = {'damaged'}
  else
    trouble = last
  end
elseif last > 562949953421311 then
  trouble = {'exhausted'}
elseif last < 1 then
  trouble = {'damaged'}
end
-- It was set to 1 or more once: the counter alone is gone, evicted or deleted,
-- or was written by somebody else. What else is missing nobody knows.
local lost = first and first <= 1 and last >= 1
for k, i in ipairs(set) do
  answers[i] = trouble or first + k - 1
  if trouble or lost then
    redis.call('DEL', KEYS[3 + i])
  end
end
if lost then
  redis.call('DEL', KEYS[1], KEYS[2])
  return forgot('')
end
return answers
