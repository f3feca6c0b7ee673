-- Frees leases, each for its owner and nobody else; raises the counter of a
-- server that fell behind what was granted, on the way. For many callers at
-- once: a list, an answer for each.
-- 1: freed; 0: there is no lease; -1: it is another's.
--
-- KEYS  1 counter  2 marker, then of each caller: lock
-- ARGV  1 marker of this server, then of each caller: owner; channel on which
--       waiters listen; value, 0: nothing to raise
--
-- A key of another type is none to MGET: not a lease of ours, at any rate.
local seen = redis.call('MGET', unpack(KEYS))
local counter = seen[1]
local highest = 0
local answers, freed, gone = {}, {}, {}

for i = 1, #KEYS - 2 do
  local lock, held, mine = KEYS[2 + i], seen[2 + i], ARGV[3 * i - 1] .. ' '
  if not held or gone[lock] then
    answers[i] = 0
  elseif string.sub(held, 1, #mine) ~= mine then
    answers[i] = -1
  else
    answers[i] = 1
    freed[#freed + 1] = lock
    gone[lock] = true
    -- Only a hint: a user without rights on the channel must not lose the
    -- answer.
    redis.pcall('PUBLISH', ARGV[3 * i], '')
  end
  highest = math.max(highest, tonumber(ARGV[3 * i + 1]))
end
if #freed > 0 then
  redis.call('DEL', unpack(freed))
end

if counter and highest > 0 and seen[2] == ARGV[1] then
  local count = tonumber(counter)
  if count and count < highest and string.find(counter, '^%d+$') then
    -- A server without memory for it frees nevertheless.
    redis.pcall('SET', KEYS[1], string.format('%.0f', highest))
  end
end
return answers
