-- Deletes one counter, unless it was settled after it was read.
-- Safe to run twice. Reads and checks come first, the write is last.
--
-- KEYS[1]   the account's counter
-- ARGV[1]   the number that the counter had when it was read, '' if it had none
-- returns   1 if it was deleted, 0 if it does not exist or has another number

local counter = KEYS[1]
local number = ''
if redis.call('TYPE', counter).ok == 'hash' then
  number = redis.call('HGET', counter, 'number') or ''
end
if number ~= ARGV[1] then
  return 0
end
return redis.call('DEL', counter)
