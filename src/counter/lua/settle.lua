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
--           the number of the line that they come after: they complete a counter that is
--           complete at that line
-- ARGV[7]   how many keys a counter holds at most; one that would hold more holds none
-- ARGV[8…]  fields of keys
-- returns 1 when it wrote, 0 when the counter knows better

local counter = KEYS[1]
local number = tonumber(ARGV[1])
local kind = redis.call('TYPE', counter).ok
local is_hash = kind == 'hash'
local current = is_hash and tonumber(redis.call('HGET', counter, 'number')) or nil

if current and current > number and current ~= tonumber(ARGV[5]) then
  return 0
end

local all = ARGV[6] == 'all'
local goes_on = is_hash and redis.call('HGET', counter, 'keys') == '1'
  and (current == number or current == tonumber(ARGV[6]))
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
