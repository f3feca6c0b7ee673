-- Raises the counter of a server that may have forgotten tokens, and takes
-- the server for known.
--
-- The wall clock in microseconds is above every token of before: the counter
-- started from an earlier reading of it and took fewer than a million steps a
-- second. The time is read here and not by the client, which may sleep
-- between reading and sending.
--
-- KEYS  1 counter  2 marker
-- ARGV  1 identity of the server  2 the highest token the client knows of
--
-- Servers before 5.0 refuse to write after TIME; lastdoor needs 5.0.
local counter = redis.pcall('GET', KEYS[1])
if type(counter) == 'table' then
  if string.find(counter.err, 'WRONGTYPE', 1, true) then
    return {'damaged'}
  end
  return counter
end
if counter and not string.find(counter, '^%d+$') then
  return {'damaged'}
end
local before = tonumber(counter or '0')
local floor = tonumber(ARGV[2])
if counter and before >= floor and redis.call('GET', KEYS[2]) == ARGV[1] then
  return {'known'} -- another client was faster
end

local time = redis.call('TIME')
local base = time[1] * 1000000 + time[2]
base = math.max(base, before + 1, floor + 1)
if base > 9007199254740991 then
  return {'exhausted'}
end
redis.call('SET', KEYS[1], string.format('%.0f', base))
redis.call('SET', KEYS[2], ARGV[1])
return {'rebased'}
