-- Settles one counter: writes an account's last line, and the keys that it must remember.
-- Safe to run twice. Reads and checks first, writes last.
--
-- KEYS[1]   the account's counter, a hash: number, line, confirmed, keys, and a field a key
-- ARGV[1]   the line's number
-- ARGV[2]   the line: instant, policy version, totals
-- ARGV[3]   when the ledger confirmed it, in milliseconds since 1970
-- ARGV[4]   for how many milliseconds the counter is of use
-- ARGV[5]   the number that the counter bore when it was asked, '' without one: a counter that
--           still bears it is overwritten even by a lower line
-- ARGV[6]   'all' when the keys that follow are all that the account must remember; otherwise
--           the line that they come after: they complete a counter that is complete at that
--           line
-- ARGV[7]   how many keys a counter holds at most; one that would hold more holds none
-- ARGV[8…]  fields of keys
-- returns 1 when it wrote, 0 when the counter knows better

local counter = KEYS[1]
local number = tonumber(ARGV[1])
local current, line, keys
if redis.call('TYPE', counter).ok == 'hash' then
  local fields = redis.call('HMGET', counter, 'number', 'line', 'confirmed', 'keys')
  local is_whole = string.match(fields[1] or '', '^%d+$') and #fields[1] <= 16
    and string.match(fields[2] or '', '^%-?%d+ %d+ %[.*%]$')
    and string.match(fields[3] or '', '^%d+$') and #fields[3] <= 14
    and fields[4]
  -- What cannot be read is no counter, and knows nothing better.
  if is_whole then
    current, line, keys = tonumber(fields[1]), fields[2], fields[4]
  end
end

if current and current > number and current ~= tonumber(ARGV[5]) then
  return 0
end

local all = ARGV[6] == 'all'
local goes_on = keys == '1' and (line == ARGV[2] or line == ARGV[6])
local fits = all or goes_on and redis.call('HLEN', counter) + #ARGV - 7 <= tonumber(ARGV[7]) + 4

if all or not fits then
  redis.call('DEL', counter)
end
redis.call('HSET', counter, 'number', ARGV[1], 'line', ARGV[2], 'confirmed', ARGV[3],
  'keys', fits and '1' or '0')
if fits then
  for index = 8, #ARGV do
    redis.call('HSET', counter, ARGV[index], '')
  end
end
redis.call('PEXPIRE', counter, ARGV[4])
return 1
