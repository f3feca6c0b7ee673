-- Prolongs the lease of one owner; never creates one, never takes one over,
-- never shortens. 1: it now lasts that long; 0: not there; -1: this server
-- may have forgotten, and what it says counts for nothing.
--
-- KEYS  1 lock  2 marker
-- ARGV  1 owner  2 TTL in ms, 1 or more  3 marker of this server
if redis.pcall('GET', KEYS[2]) ~= ARGV[3] then
  return -1
end
local held = redis.call('GET', KEYS[1])
local mine = ARGV[1] .. ' '
if not held or string.sub(held, 1, #mine) ~= mine then
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
