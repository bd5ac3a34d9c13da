-- Decides a claim without the ledger: it compares, counts, and queues the grant, all or nothing.
-- Safe to run twice: the claim's entry id and key are remembered until the ledger has the grant.
-- line.lua and queue.lua are put before it.
--
-- KEYS[1]  the account's counter
-- KEYS[2]  the account's waiting hash: what waits for the ledger. A field `i` and an entry's id, and a
--          field `k` and a key's id, have the place in the queue. A field `u` and a window's name has
--          the units that wait. A field `n` has the instant at which the ledger had no entry of the
--          account, in microseconds since 1970
-- KEYS[3]  the bucket's queue, a stream
-- ARGV[1]  `i` and the entry's id; '' for a look, which changes nothing
-- ARGV[2]  `k` and the key's id; '' without a key
-- ARGV[3]  the units
-- ARGV[4]  the version of the policy of the limits
-- ARGV[5]  what the ledger says: '' if it was not asked; 'silent' if it does not answer; otherwise
--          the number of the account's last line: the limits' used units are as of this line
-- ARGV[6]  the grant, for the queue
-- ARGV[7]  the present instant in microseconds since 1970
-- ARGV[8]  'observe' if the policy only observes: then a claim is denied only if it cannot be
--          counted; otherwise ''
-- ARGV[9]  an instant in microseconds since 1970. A counter that the ledger confirmed before it may
--          have been rolled back with Redis, and may lack keys
-- ARGV[10] the windows' names, for the queue
-- ARGV[11…] four for each limit: its window's field in the waiting hash; its max; the pattern that
--          finds the used units of its window in the totals of a line, between semicolons; and the
--          used units of its window as of the ledger's last line
-- returns  {'granted', used…}: the units used in each window, including the claim's
--          {'denied', confirmed, used…}: the units used in each window, and the instant at which the
--          ledger last confirmed the counter ('' if it did not)
--          {'waits', confirmed, used…}: denied only because of grants that are moving into the
--          ledger. If they are in the ledger already, they were counted twice
--          {'looked', number, {id…}, used, waits, …}, for a look: the number of the line behind the
--          used units, the ids of the grants that wait (none if there are too many), and for each
--          window the used units and the units that wait
--          {'queued', place, fields…}: the claim, or a claim with its key, waits already
--          {'ask', number}: the counter does not know enough, ask the ledger. The number is the
--          counter's, '' without a counter

local counter, waiting, queue = KEYS[1], KEYS[2], KEYS[3]
local id, key, units = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ledger = ARGV[5]
local observes = ARGV[8] == 'observe'
local trusted_from = tonumber(ARGV[9])
-- For how many microseconds an account without entries is believed to have none.
local NEW_FOR = 3000000
-- The most units of a window: a double counts them exactly.
local UNITS_MAX = 9007199254740991
-- A look reads ids only if the waiting hash has at most this many fields.
local FIELDS_MOST = 1000

-- 1. Read what waits: the places of the claim's id and key, and the units by window. A claim that
-- waits already is not counted again.
local fields = {'n', id, key}
for index = 11, #ARGV, 4 do
  fields[#fields + 1] = ARGV[index]
end
local waits = redis.call('HMGET', waiting, unpack(fields))
local may_wait = id == ''
for _, value in ipairs(waits) do
  may_wait = may_wait or value
end
-- Without a queue nothing waits, whatever the waiting hash says.
if may_wait and redis.call('EXISTS', queue) == 0 then
  waits = {}
end
for field = 2, 3 do
  local place, name = waits[field], field == 2 and 'id' or 'key'
  local found = place and entry_at(queue, place, name, fields[field])
  if found then
    return {'queued', found[1], found[2]}
  end
end

-- 2. Find out whether the counter knows enough, or the account is known to be new. Otherwise ask the
-- ledger.
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
      or string.find(text, '^[pk]%d+,[%d/-]+,%d+,%-?%d+%+%d')
    -- Holds that may have lapsed still take units until the ledger has their lapses.
    local may_have_lapses = lapses ~= '-' and (tonumber(lapses) or 0) <= tonumber(ARGV[7])
    if not is_readable or tonumber(version) > tonumber(ARGV[4]) or may_have_lapses then
      return ask
    end
  end
end

-- 3. Add up the units used in each window and those that wait.
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

-- Only the ledger may know that this claim is the retry of a grant.
if is_denied and ledger == 'silent' and key ~= '' and not holds_all_keys then
  return ask
end

-- 4. Answer. A grant is queued, and counted in the waiting hash.
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
