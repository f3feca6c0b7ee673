-- Frees the lease of one owner, and nobody else's; raises the counter of a
-- server that fell behind what was granted, on the way.
-- 1: freed; 0: there is no lease; -1: it is another's.
--
-- KEYS  1 lock  2 counter  3 marker
-- ARGV  1 owner  2 channel on which waiters listen  3 value, 0: nothing to
--       raise  4 marker of this server
--
-- A key of another type is none to MGET: not a lease of ours, at any rate.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local held, counter = seen[1], seen[2]
if counter and ARGV[3] ~= '0' and seen[3] == ARGV[4] then
  local count = tonumber(counter)
  if count and count < tonumber(ARGV[3])
      and string.find(counter, '^%d+$') then
    redis.call('SET', KEYS[2], ARGV[3])
  end
end
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
