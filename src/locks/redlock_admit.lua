-- Admits a server: its counter is raised above all that it may have
-- forgotten, then it gets its marker.
--
-- KEYS  1 counter  2 marker  3 note
-- ARGV  1 new marker  2 marker as it was found  3 note as it was found,
--       '*' where the marker alone tells that nothing was forgotten
--       4 value that its counter must have reached
local marker = redis.pcall('GET', KEYS[2])
if type(marker) == 'table' then
  return {'damaged'}
end
if marker == ARGV[1] then
  return {'known'} -- another client was faster
end
local note = redis.pcall('GET', KEYS[3])
-- Otherwise it has forgotten again since the wait began.
if (marker or '') ~= ARGV[2]
    or ARGV[3] ~= '*' and (note or '') ~= ARGV[3] then
  return {'changed', marker or ''}
end
local counter = redis.pcall('GET', KEYS[1])
if type(counter) == 'table'
    or counter and not string.find(counter, '^%d+$') then
  return {'damaged'}
end
if tonumber(counter or '0') < tonumber(ARGV[4]) then
  redis.call('SET', KEYS[1], ARGV[4])
end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return {'admitted'}
