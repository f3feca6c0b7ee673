-- The mark of one resource (false: none), if there is a ledger.
--
-- KEYS  1 ledger    ARGV  1 resource
local known = redis.call('HMGET', KEYS[1], '\0format', ARGV[1])
if not known[1] then
  return {'blank'}
end
if known[1] ~= '1' then
  return {'format', known[1]}
end
return {'mark', known[2]}
