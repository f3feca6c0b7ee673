-- Binds the marks of one source to another and retires the first. Walks the
-- whole ledger in one step, since no mark may be left behind.
--
-- KEYS  1 ledger    ARGV  1 from  2 to
local format = redis.call('HGET', KEYS[1], '\0format')
if not format then
  return {'blank'}
end
if format ~= '1' then
  return {'format', format}
end
local heir = redis.call('HGET', KEYS[1], '\0retired ' .. ARGV[2])
if heir then
  return {'retired', heir}
end
local all = redis.call('HGETALL', KEYS[1])
local moved = {}
for i = 1, #all, 2 do
  if string.byte(all[i], 1) ~= 0 then
    local head, bound = string.match(all[i + 1], '^(%d+ %x+ %d+ [01] )(%S+)$')
    if not head then
      return {'damaged', all[i]}
    end
    if bound == ARGV[1] then
      moved[#moved + 1] = {all[i], head .. ARGV[2]}
    end
  end
end
redis.call('HSET', KEYS[1], '\0retired ' .. ARGV[1], ARGV[2])
for _, mark in ipairs(moved) do
  redis.call('HSET', KEYS[1], mark[1], mark[2])
end
return {'moved', #moved}
