-- How a counter's last line is read and written. The scripts that need it begin with it, and
-- say what KEYS, ARGV and what it returns are.

-- Whether a counter's fields are as perdiem writes them: what cannot be read is no counter.
local function is_whole(number, line, confirmed, keys)
  return number and line and confirmed and keys
    and #number <= 16 and string.find(number, '^%d+$')
    and #confirmed <= 14 and string.find(confirmed, '^%d+$')
    and string.find(line, '^%-?%d+ %d+ %S+ %a%d%S*$')
end

-- A counter's fields, or nil. `knows` tells whether it holds the field of a key, where one is
-- named.
local function read_line(counter, key)
  local fields = redis.pcall('HMGET', counter, 'number', 'line', 'confirmed', 'keys', key)
  if not is_whole(fields[1], fields[2], fields[3], fields[4]) then
    return nil
  end
  return {number = tonumber(fields[1]), line = fields[2], confirmed = fields[3],
    keys = fields[4], knows = fields[5]}
end

-- Writes an account's last line, and the keys that it must remember. Safe to run twice.
-- Reads and checks first, writes last.
--
-- counter       the account's counter, a hash: number, line, confirmed, keys, and a field a key
-- arguments[1]  the line's number
-- arguments[2]  the line: instant, policy version, when its first hold lapses, totals
-- arguments[3]  when the ledger confirmed it, in milliseconds since 1970
-- arguments[4]  for how many milliseconds the counter is of use
-- arguments[5]  the number that the counter bore when it was asked, '' without one: a counter
--               that still bears it is overwritten even by a lower line
-- arguments[6]  'all' when the keys that follow are all that the account must remember;
--               otherwise the number and the line that they come after: they complete a counter
--               that is complete at that line; '' when none are told: the counter is not complete
-- arguments[7]  how many keys a counter holds at most; one that would hold more holds none
-- arguments[8…] fields of keys
-- returns 1 when it wrote, 0 when the counter knows better
local function settle(counter, arguments)
  local number, most = tonumber(arguments[1]), tonumber(arguments[7])
  local fields = redis.pcall('HMGET', counter, 'number', 'line', 'confirmed', 'keys')
  local name = fields[1] and fields[2] and fields[1] .. ' ' .. fields[2]
  -- Mostly it bears the line before.
  if name and name ~= arguments[6] and is_whole(fields[1], fields[2], fields[3], fields[4]) then
    local current = tonumber(fields[1])
    if current > number and current ~= tonumber(arguments[5]) then
      return 0
    end
  end

  local all = arguments[6] == 'all'
  local goes_on = name and fields[4] == '1'
    and (name == arguments[6] or name == arguments[1] .. ' ' .. arguments[2])
  -- A complete counter holds no more keys than its account has entries.
  local fits = all or goes_on
    and (number <= most or redis.call('HLEN', counter) + #arguments - 7 <= most + 4)
  -- What is there, of whatever kind, unless it stays.
  if (fields.err or name) and (all or not fits) then
    redis.call('DEL', counter)
  end
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
