-- Grants a lease and draws its token, in one step.
--
-- KEYS  1 lock  2 counter  3 marker: all in one slot
-- ARGV  1 owner  2 TTL in ms  3 holder, free text  4 identity of the server
--
-- The lock's value is "owner token holder": the owner and the token are words
-- without blanks. Nothing is written before everything has been checked, and
-- the lock is written last, so an error leaves no lock behind.

-- The server of this connection must be the one that the counter was last
-- raised for; else it may have forgotten tokens that it handed out.
if redis.call('GET', KEYS[3]) ~= ARGV[4] then
  return {'forgot'}
end

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then
    return {'foreign'}
  end
  return held
end
if held then
  return {'busy', redis.call('PTTL', KEYS[1]), held}
end

local token = redis.pcall('INCR', KEYS[2])
if type(token) == 'table' then
  if string.find(token.err, 'overflow', 1, true) then
    return {'exhausted'}
  end
  if string.find(token.err, 'WRONGTYPE', 1, true)
      or string.find(token.err, 'not an integer', 1, true) then
    return {'damaged'}
  end
  return token
end
if token > 9007199254740991 then
  return {'exhausted'}
end
if token < 1 then
  return {'damaged'}
end
if token == 1 then
  -- It was raised far above this once: the counter alone is gone, evicted or
  -- deleted. Leave it absent, as it was.
  redis.call('DEL', KEYS[2])
  return {'forgot'}
end

redis.call('SET', KEYS[1],
  ARGV[1] .. ' ' .. string.format('%.0f', token) .. ' ' .. ARGV[3],
  'NX', 'PX', ARGV[2])
return {'granted', token}
