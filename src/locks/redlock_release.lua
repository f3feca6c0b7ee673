-- Frees the lease of one owner, and nobody else's; raises the counter of a
-- server that fell behind what was granted, on the way.
-- 1: freed; 0: there is no lease; -1: it is another's.
--
-- KEYS  1 lock  2 counter  3 marker
-- ARGV  1 owner  2 channel on which waiters listen  3 value, 0: nothing to
--       raise  4 marker of this server
if ARGV[3] ~= '0' and redis.pcall('GET', KEYS[3]) == ARGV[4] then
  local counter = redis.pcall('GET', KEYS[2])
  if type(counter) == 'string' and string.find(counter, '^%d+$')
      and tonumber(counter) < tonumber(ARGV[3]) then
    redis.call('SET', KEYS[2], ARGV[3])
  end
end
local held = redis.call('GET', KEYS[1])
if not held then
  return 0
end
local mine = ARGV[1] .. ' '
if string.sub(held, 1, #mine) ~= mine then
  return -1
end
redis.call('DEL', KEYS[1])
-- Only a hint: a user without rights on the channel must not lose the answer.
redis.pcall('PUBLISH', ARGV[2], '')
return 1
