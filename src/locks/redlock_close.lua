-- Takes a server's marker away, or reserves a blank server: what is written in
-- its place is no marker, so nothing is granted, raised or renewed any more.
-- The counter goes into it: it says how far the tokens of the old cluster may
-- have come, whatever becomes of the counter itself.
--
-- KEYS  1 counter  2 marker  3 note
-- ARGV  1 marker as it was found, or ''  2 what takes its place, without the
--       counter  3 'count', 'lost' (its counter may have fallen) or 'blank'
--       4 for 'blank': note as it was found
local marker = redis.pcall('GET', KEYS[2])
if type(marker) == 'table' then
  return {'damaged'}
end
if (marker or '') ~= ARGV[1] then
  return {'changed', marker or ''}
end
local counter = redis.pcall('GET', KEYS[1])
if ARGV[3] == 'blank'
    and (counter or (redis.pcall('GET', KEYS[3]) or '') ~= ARGV[4]) then
  return {'changed', ''}
end
if ARGV[3] ~= 'count' or type(counter) ~= 'string'
    or not string.find(counter, '^%d+$') then
  counter = '-'
end
local text = ARGV[2] .. ' ' .. counter
redis.call('SET', KEYS[2], text)
return {'closed', text}
