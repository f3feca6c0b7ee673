-- One stretch of the ledger: where to go on ('0': it was the last), and
-- fields and values in turn, lastdoor's own among them.
--
-- KEYS  1 ledger    ARGV  1 where to begin, '0' at first
local format = redis.call('HGET', KEYS[1], '\0format')
if not format then
  return {'blank'}
end
if format ~= '1' then
  return {'format', format}
end
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', '500')
return {'marks', found[1], found[2]}
