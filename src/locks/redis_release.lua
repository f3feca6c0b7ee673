-- Frees the lease of one owner, and nobody else's.
-- 1: freed; 0: there is no lease; -1: it is another's.
--
-- KEYS  1 lock    ARGV  1 owner  2 channel on which waiters listen
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
