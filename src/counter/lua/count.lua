-- Decides a claim without the ledger: compares, counts, and queues the grant, all or nothing.
-- Safe to run twice: the claim's entry id and its key are remembered until the ledger has it.
-- Begins with line.lua.
--
-- KEYS[1]  the account's counter
-- KEYS[2]  what of the account waits for the ledger, a hash: a field `i` and an entry's id, and
--          a field `k` and a key's, with the place in the queue; a field `u` and a window's
--          name, with the units that wait; a field `n` with the instant when the ledger told
--          that it has nothing of the account, in microseconds since 1970
-- KEYS[3]  the bucket's queue, a stream
-- ARGV[1]  `i` and the entry's id, '' to look and change nothing
-- ARGV[2]  `k` and the key's id, '' without one
-- ARGV[3]  the units
-- ARGV[4]  the version of the policy that the limits are of
-- ARGV[5]  what the ledger says: '' when it was not asked; 'silent' when it does not answer; or
--          the number of the account's last line, which the limits' `used` go by
-- ARGV[6]  the grant, for the queue
-- ARGV[7]  the present instant in microseconds since 1970
-- ARGV[8]  'observe' when the policy only observes: then only what cannot be counted is denied;
--          otherwise ''
-- ARGV[9]  an instant in microseconds since 1970: what the ledger told before it may have been
--          rolled back with Redis, and then lacks keys
-- ARGV[10] the windows' names, for the queue
-- ARGV[11…] four for each limit: its window's field in what waits; max; the pattern that finds the
--          units used in its window, in the totals of a line between semicolons; and the units used
--          in it as of the ledger's last line
-- returns  {'granted', used…} or {'denied', confirmed, used…}: the units used in each window,
--          with the claim's when it is granted, and when the ledger last confirmed the counter
--          ('' when it did not);
--          {'waits', confirmed, used…} when it would be denied for grants of the account that are
--          on their way into the ledger, where they may stand already: then they count twice;
--          {'looked', number, {id…}, used, waits, …}, for a look: the line that the units used in each
--          window go by, the ids of what waits unless they are too many, and the units that wait
--          for each window;
--          {'queued', place, fields…} when the claim, or another with its key, waits already;
--          {'ask', number} when the counter cannot tell what the ledger can: the number that it
--          bears, '' without a counter

local counter, waiting, queue = KEYS[1], KEYS[2], KEYS[3]
local id, key, units = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ledger = ARGV[5]
local observes = ARGV[8] == 'observe'
local trusted_from = tonumber(ARGV[9])
-- For how many microseconds an account without entries is taken for one.
local NEW_FOR = 3000000
-- The most units that may be used in a window: what a double counts exactly.
local UNITS_MAX = 9007199254740991
-- Of how many fields of what waits a look reads the ids.
local FIELDS_MOST = 1000

-- 1. What waits of the account: the places of the claim's id and key, and the units by window.
local fields = {'n', id, key}
for index = 11, #ARGV, 4 do
  fields[#fields + 1] = ARGV[index]
end
local waits = redis.call('HMGET', waiting, unpack(fields))
local may_wait = id == ''
for _, value in ipairs(waits) do
  may_wait = may_wait or value
end
-- Without a queue nothing waits, whatever the hash says.
if may_wait and redis.call('EXISTS', queue) == 0 then
  waits = {}
end
for field = 2, 3 do
  local place = waits[field]
  local found = place and redis.call('XRANGE', queue, place, place)[1]
  if found then
    return {'queued', found[1], found[2]}
  end
end

-- 2. Whether the counter, or that the account is new, tells enough.
local current = read_line(counter, key)
local ask = {'ask', current and string.format('%.0f', current.number) or ''}
if current and current.knows then
  return ask
end
local holds_all_keys = current and current.keys == '1'
  and tonumber(current.confirmed) * 1000 > trusted_from
local number = tonumber(ledger)
if not current and ledger == '' then
  local told = tonumber(waits[1] or '')
  if told and told > trusted_from and math.abs(tonumber(ARGV[7]) - told) <= NEW_FOR then
    number = 0
  end
end
if ledger == '' and not number and (not current or key ~= '' and not holds_all_keys) then
  return ask
end
if number and current and current.number > number then
  return ask
end
local at, totals
if current and not number then
  local version, lapses, text
  at, version, lapses, text = string.match(current.line, '^(%-?%d+) (%d+) (%S+) (%S+)$')
  at, totals = tonumber(at), ';' .. text .. ';'
  if ledger == '' then
    local is_readable = string.find(text, '^%a%d+,%d+,%-?%d+%+%d')
    -- Holds that may have lapsed take units until the ledger says so.
    local may_have_lapses = lapses ~= '-' and (tonumber(lapses) or 0) <= tonumber(ARGV[7])
    if not is_readable or tonumber(version) > tonumber(ARGV[4]) or may_have_lapses then
      return ask
    end
  end
end

-- 3. The units used in each window, with those that wait.
local used, looked, pending, is_denied, is_certain = {}, {}, {}, false, false
for index = 11, #ARGV, 4 do
  local before
  if number then
    before = tonumber(ARGV[index + 3])
  else
    before = totals and tonumber(string.match(totals, ARGV[index + 2]))
    if not before then
      local begins = tonumber(string.match(ARGV[index], '%-?%d+$'))
      if ledger ~= 'silent' and begins * 1000000 <= at then
        return ask
      end
      before = 0
    end
  end
  local room = (observes and UNITS_MAX or tonumber(ARGV[index + 1])) - before
  local waiting_units = tonumber(waits[#used + 4] or '0')
  is_certain = is_certain or units > room
  is_denied = is_denied or units > room - waiting_units
  if id == '' then
    looked[#looked + 1] = string.format('%.0f', before)
    looked[#looked + 1] = string.format('%.0f', waiting_units)
  end
  used[#used + 1] = before + waiting_units
  pending[#pending + 1] = waiting_units + units
end

if id == '' then
  local ids = {}
  if #waits > 0 and ledger ~= 'silent' and redis.call('HLEN', waiting) <= FIELDS_MOST then
    for _, field in ipairs(redis.call('HKEYS', waiting)) do
      if string.sub(field, 1, 1) == 'i' then
        ids[#ids + 1] = field
      end
    end
  end
  return {'looked', string.format('%.0f', number or current and current.number or 0), ids,
    unpack(looked)}
end

-- The ledger alone may know that this is the retry of a grant.
if is_denied and ledger == 'silent' and key ~= '' and not holds_all_keys then
  return ask
end

-- 4. The answer, and what a grant writes.
local answer = {'granted'}
if is_denied then
  local waits_first = not is_certain and ledger ~= 'silent'
  answer = {waits_first and 'waits' or 'denied', current and not number and current.confirmed or ''}
end
for _, before in ipairs(used) do
  answer[#answer + 1] = string.format('%.0f', is_denied and before or before + units)
end
if is_denied then
  return answer
end

local place = redis.call('XADD', queue, '*', 'id', id, 'key', key, 'units', ARGV[3],
  'windows', ARGV[10], 'used', table.concat(answer, ' ', 2), 'grant', ARGV[6])
local written = {id, place, key ~= '' and key or id, place}
if ledger == '0' then
  written[5], written[6] = 'n', ARGV[7]
end
for index, units_after in ipairs(pending) do
  written[#written + 1] = fields[index + 3]
  written[#written + 1] = string.format('%.0f', units_after)
end
redis.call('HSET', waiting, unpack(written))
return answer
