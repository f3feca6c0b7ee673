-- What a server remembers: its marker ('' none, '?' not a text), its counter
-- ('' none, '?' no number) and the note of its quarantine. Writes nothing.
--
-- KEYS  1 counter  2 marker  3 note
local function text(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then
    return '?'
  end
  return found or ''
end
local counter = text(KEYS[1])
if counter ~= '' and not string.find(counter, '^%d+$') then
  counter = '?'
end
return {text(KEYS[2]), counter, text(KEYS[3])}
