-- Begins a quarantine, unless one has begun or the server is admitted.
--
-- KEYS  1 marker  2 note    ARGV  1 marker of this server  2 a fresh note
local marker = redis.pcall('GET', KEYS[1])
if marker == ARGV[1] then
  return {'admitted'}
end
if type(marker) == 'table' then
  marker = '?'
end
redis.call('SET', KEYS[2], ARGV[2], 'NX')
return {'forgot', marker or '', redis.call('GET', KEYS[2])}
