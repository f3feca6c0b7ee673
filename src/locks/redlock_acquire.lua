-- Votes for a lease: sets the lock and answers the next value of the counter.
--
-- KEYS  1 lock  2 counter  3 marker  4 note
-- ARGV  1 owner  2 TTL in ms  3 holder, free text  4 marker of this server
--       5 a fresh note
--
-- A server whose marker is not the expected one may have forgotten what it
-- granted: it votes for nothing. The note lives as long as its memory does,
-- so whoever waits for the readmission knows that the wait is for this one.
local marker = redis.pcall('GET', KEYS[3])
if marker ~= ARGV[4] then
  if type(marker) == 'table' then
    marker = '?'
  end
  redis.call('SET', KEYS[4], ARGV[5], 'NX')
  return {'forgot', marker or '', redis.call('GET', KEYS[4])}
end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then
    return {'foreign'}
  end
  return held
end
if held then
  return {'busy', redis.call('PTTL', KEYS[1]), held}
end

local value = redis.pcall('INCR', KEYS[2])
if type(value) == 'table' then
  if string.find(value.err, 'overflow', 1, true) then
    return {'exhausted'}
  end
  if string.find(value.err, 'WRONGTYPE', 1, true)
      or string.find(value.err, 'not an integer', 1, true) then
    return {'damaged'}
  end
  return value
end
-- 16 times this, and a place below 16, is the token: 2^53-1 at most.
if value > 562949953421311 then
  return {'exhausted'}
end
if value < 1 then
  return {'damaged'}
end
if value == 1 then
  -- It was set to 1 or more once: the counter alone is gone, evicted or
  -- deleted. What else is missing nobody knows.
  redis.call('DEL', KEYS[2], KEYS[3])
  redis.call('SET', KEYS[4], ARGV[5], 'NX')
  return {'forgot', '', redis.call('GET', KEYS[4])}
end

redis.call('SET', KEYS[1],
  ARGV[1] .. ' ' .. string.format('%.0f', value) .. ' ' .. ARGV[3],
  'NX', 'PX', ARGV[2])
return {'granted', value}
