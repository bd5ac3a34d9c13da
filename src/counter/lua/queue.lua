-- Finds an entry of a queue. It is put before the scripts that need it. Their headers explain
-- KEYS, ARGV and what it returns.

-- The entry at a place, as its place and its fields, if the named field has the value, or if no value
-- is given. Otherwise nil: an empty queue is deleted, and then a later grant may have the same place.
local function entry_at(queue, place, name, value)
  local entry = redis.call('XRANGE', queue, place, place)[1]
  if not entry or not value then
    return entry
  end
  for index = 1, #entry[2], 2 do
    if entry[2][index] == name then
      return entry[2][index + 1] == value and entry or nil
    end
  end
  return nil
end
