-- What a server remembers: its marker ('' none, '?' not a text), its counter
-- ('' none, '?' no number) and the note of its quarantine. Writes nothing. Or
-- the error of a look that was refused.
--
-- KEYS  1 counter  2 marker  3 note
local refused
local function text(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then
      refused = found
    end
    return '?'
  end
  return found or ''
end
local counter = text(KEYS[1])
if counter ~= '' and not string.find(counter, '^%d+$') then
  counter = '?'
end
local seen = {text(KEYS[2]), counter, text(KEYS[3])}
return refused or seen
