-- Raises the counter of a server that is admitted. Never lowers anything.
-- With an owner: only while that owner holds the lock here.
--
-- KEYS  1 lock  2 counter  3 marker
-- ARGV  1 owner, or ''  2 value  3 marker of this server
if redis.pcall('GET', KEYS[3]) ~= ARGV[3] then
  return {'forgot'}
end
if ARGV[1] ~= '' then
  local held = redis.call('GET', KEYS[1])
  local mine = ARGV[1] .. ' '
  if not held or string.sub(held, 1, #mine) ~= mine then
    return {'gone'}
  end
end
local counter = redis.pcall('GET', KEYS[2])
if not counter then
  return {'forgot'}
end
if type(counter) == 'table' or not string.find(counter, '^%d+$') then
  return {'damaged'}
end
if tonumber(counter) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2])
end
return {'raised'}
