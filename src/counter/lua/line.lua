-- Reads and writes a counter's last line. It is put before the scripts that need it. Their headers
-- explain KEYS, ARGV and what it returns.

-- Whether a counter's fields are as perdiem writes them. Anything else is no counter.
local function is_whole(number, line, confirmed, keys)
  return number and line and confirmed and keys
    and #number <= 16 and string.find(number, '^%d+$')
    and #confirmed <= 14 and string.find(confirmed, '^%d+$')
    and string.find(line, '^%-?%d+ %d+ %S+ %a%d%S*$')
end

-- A counter's fields, or nil. `knows` says whether the counter has the field of the key, if a key is
-- given.
local function read_line(counter, key)
  local fields = redis.pcall('HMGET', counter, 'number', 'line', 'confirmed', 'keys', key)
  if not is_whole(fields[1], fields[2], fields[3], fields[4]) then
    return nil
  end
  return {number = tonumber(fields[1]), line = fields[2], confirmed = fields[3],
    keys = fields[4], knows = fields[5]}
end

-- Writes an account's last line, and the keys that it must remember. Safe to run twice.
-- Reads and checks come first, writes are last.
--
-- counter       the account's counter, a hash: number, line, confirmed, keys, and a field a key
-- arguments[1]  the line's number
-- arguments[2]  the line: instant, policy version, when the first hold lapses, totals
-- arguments[3]  when the ledger confirmed it, in milliseconds since 1970
-- arguments[4]  the life of the counter in milliseconds
-- arguments[5]  the number that the counter had when it was asked, '' if it had none. A counter
--               that still has this number is overwritten even by a lower line
-- arguments[6]  'all' if the keys that follow are all keys that the account must remember.
--               Otherwise the number and the line that the keys follow: if the counter has all
--               keys up to that line, it then has all keys again. '' if no keys are given: then
--               the counter does not have all keys
-- arguments[7]  the most keys of a counter. A counter that would have more keys has none
-- arguments[8…] fields of keys
-- returns       1 if it wrote, 0 if the counter has a newer line
local function settle(counter, arguments)
  local number, most = tonumber(arguments[1]), tonumber(arguments[7])
  local fields = redis.pcall('HMGET', counter, 'number', 'line', 'confirmed', 'keys')
  local name = fields[1] and fields[2] and fields[1] .. ' ' .. fields[2]
  -- 1. Keep a counter with a newer line. Mostly the counter has the line before this one.
  if name and name ~= arguments[6] and is_whole(fields[1], fields[2], fields[3], fields[4]) then
    local current = tonumber(fields[1])
    if current > number and current ~= tonumber(arguments[5]) then
      return 0
    end
  end

  -- 2. Will the counter have all keys?
  local all = arguments[6] == 'all'
  local goes_on = name and fields[4] == '1'
    and (name == arguments[6] or name == arguments[1] .. ' ' .. arguments[2])
  -- A counter never has more keys than its account has entries.
  local fits = all or goes_on
    and (number <= most or redis.call('HLEN', counter) + #arguments - 7 <= most + 4)
  -- 3. Delete what exists under the name, of whatever type, unless its keys are kept.
  if (fields.err or name) and (all or not fits) then
    redis.call('DEL', counter)
  end
  -- 4. Write the line and the keys.
  local written = {'number', arguments[1], 'line', arguments[2], 'confirmed', arguments[3],
    'keys', fits and '1' or '0'}
  for index = 8, fits and #arguments or 0 do
    written[#written + 1] = arguments[index]
    written[#written + 1] = ''
  end
  redis.call('HSET', counter, unpack(written))
  redis.call('PEXPIRE', counter, arguments[4])
  return 1
end
