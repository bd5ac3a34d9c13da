-- How a counter's last line is read and written. The scripts that need it begin with it, and
-- say what KEYS, ARGV and what it returns are.

-- A counter's fields as perdiem writes them, or nil: what cannot be read is no counter.
-- `knows` tells whether it holds the field of a key, where one is named.
local function read_line(counter, key)
  local fields = redis.pcall('HMGET', counter, 'number', 'line', 'confirmed', 'keys', key or '')
  local is_whole = string.match(fields[1] or '', '^%d+$') and #fields[1] <= 16
    and string.match(fields[2] or '', '^%-?%d+ %d+ %S+ %a%d%S*$')
    and string.match(fields[3] or '', '^%d+$') and #fields[3] <= 14
    and fields[4]
  if not is_whole then
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
--               that is complete at that line
-- arguments[7]  how many keys a counter holds at most; one that would hold more holds none
-- arguments[8…] fields of keys
-- returns 1 when it wrote, 0 when the counter knows better
local function settle(counter, arguments)
  local number = tonumber(arguments[1])
  local current = read_line(counter)
  if current and current.number > number and current.number ~= tonumber(arguments[5]) then
    return 0
  end

  local all = arguments[6] == 'all'
  local name = current and string.format('%.0f %s', current.number, current.line)
  local goes_on = current and current.keys == '1'
    and (name == arguments[1] .. ' ' .. arguments[2] or name == arguments[6])
  local fits = all
    or goes_on and redis.call('HLEN', counter) + #arguments - 7 <= tonumber(arguments[7]) + 4

  if all or not fits then
    redis.call('DEL', counter)
  end
  local fields = {'number', arguments[1], 'line', arguments[2], 'confirmed', arguments[3],
    'keys', fits and '1' or '0'}
  for index = 8, fits and #arguments or 0 do
    fields[#fields + 1] = arguments[index]
    fields[#fields + 1] = ''
  end
  redis.call('HSET', counter, unpack(fields))
  redis.call('PEXPIRE', counter, arguments[4])
  return 1
end
