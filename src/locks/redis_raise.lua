-- Afterwards every new token is above the floor. Never lowers anything.
--
-- KEYS  1 counter    ARGV  1 floor, at most 2^53-1
local counter = redis.pcall('GET', KEYS[1])
if type(counter) == 'table' then
  if string.find(counter.err, 'WRONGTYPE', 1, true) then
    return {'damaged'}
  end
  return counter
end
local now = 0
if counter then
  -- Lua would read '0x10' and '1e3' as numbers; Redis would not.
  if not string.find(counter, '^%-?%d+$') then
    return {'damaged'}
  end
  now = tonumber(counter)
end
if now < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1])
end
return {'raised'}
