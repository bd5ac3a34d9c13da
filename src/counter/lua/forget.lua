-- Deletes one counter, unless it was settled since it was read.
-- Safe to run twice. Reads and checks first, writes last.
--
-- KEYS[1]   the account's counter
-- ARGV[1]   the number that it bore when it was read, '' without one
-- returns 1 when it deleted, 0 when there is none or it bears another number

local counter = KEYS[1]
local number = ''
if redis.call('TYPE', counter).ok == 'hash' then
  number = redis.call('HGET', counter, 'number') or ''
end
if number ~= ARGV[1] then
  return 0
end
return redis.call('DEL', counter)
