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
-- ARGV[10…] five for each limit: per, max, the window's start and end in seconds since 1970, and
--          the units used in it as of the ledger's last line
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
-- Without a queue nothing waits, whatever the hash says.
local is_queue = redis.call('EXISTS', queue) == 1

-- What waits of the account: the places of the claim's id and key, and the units by window.
local names, units_of = {}, {}
for index = 10, #ARGV, 5 do
  names[#names + 1] = ARGV[index] .. ':' .. ARGV[index + 2]
  units_of[#names] = 'u' .. names[#names]
end
local waits = is_queue and redis.call('HMGET', waiting, 'n', id, key, unpack(units_of)) or {}
for field = 2, 3 do
  local place = waits[field]
  local found = place and redis.call('XRANGE', queue, place, place)[1]
  if found then
    return {'queued', found[1], found[2]}
  end
end

local current = read_line(counter, key)
local ask = {'ask', current and string.format('%.0f', current.number) or ''}
if current and current.knows then
  return ask
end
local holds_all_keys = current and current.keys == '1'
  and tonumber(current.confirmed) * 1000 > trusted_from
local number = tonumber(ledger)
local told = tonumber(waits[1] or '')
local is_new = not current and told and told > trusted_from
  and math.abs(tonumber(ARGV[7]) - told) <= NEW_FOR
if ledger == '' and is_new then
  number = 0
elseif ledger == '' and (not current or key ~= '' and not holds_all_keys) then
  return ask
end
if number and current and current.number > number then
  return ask
end

-- The units used in the windows of the counter's line, as domain/totals.rs writes them.
local LETTERS = {minute = 'i', hour = 'h', day = 'd', week = 'w', month = 'm', year = 'y'}
local at, version, totals
if current and not number then
  local lapses, text
  at, version, lapses, text = string.match(current.line, '^(%-?%d+) (%d+) (%S+) (%S+)$')
  at, version = tonumber(at), tonumber(version)
  for letter, used, first, length in string.gmatch(text, '(%a)%d+,(%d+),(%-?%d+)%+(%d+)') do
    totals = totals or {}
    totals[letter .. first .. '+' .. length] = tonumber(used)
  end
  -- Holds that may have lapsed take units until the ledger says so.
  local may_have_lapses = lapses ~= '-' and (tonumber(lapses) or 0) <= tonumber(ARGV[7])
  if ledger == '' and (not totals or version > tonumber(ARGV[4]) or may_have_lapses) then
    return ask
  end
end

-- The units used in a window, without those that wait; nil when only the ledger can tell.
local function used_in(per, first, last, by_ledger)
  if number then
    return tonumber(by_ledger)
  end
  local used = totals and totals[string.format('%s%.0f+%.0f', LETTERS[per], first, last - first)]
  if used then
    return used
  end
  if ledger == 'silent' or first * 1000000 > at then
    return 0
  end
  return nil
end

local used, looked, denied, is_certain = {}, {}, false, false
for index = 10, #ARGV, 5 do
  local before = used_in(ARGV[index], tonumber(ARGV[index + 2]), tonumber(ARGV[index + 3]),
    ARGV[index + 4])
  if not before then
    return ask
  end
  local max = observes and UNITS_MAX or tonumber(ARGV[index + 1])
  is_certain = is_certain or units > max - before
  local waiting_units = waits[#used + 4] or '0'
  if id == '' then
    looked[#looked + 1] = string.format('%.0f', before)
    looked[#looked + 1] = waiting_units
  end
  before = before + tonumber(waiting_units)
  denied = denied or units > max - before
  used[#used + 1] = before
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
if denied and ledger == 'silent' and key ~= '' and not holds_all_keys then
  return ask
end

local answer = {'granted'}
if denied then
  local waits_first = not is_certain and ledger ~= 'silent'
  answer = {waits_first and 'waits' or 'denied', current and not number and current.confirmed or ''}
end
for index, before in ipairs(used) do
  answer[#answer + 1] = string.format('%.0f', denied and before or before + units)
end
if denied then
  return answer
end

local after = table.concat(answer, ' ', 2)
local place = redis.call('XADD', queue, '*', 'id', id, 'key', key, 'units', ARGV[3],
  'windows', table.concat(names, ' '), 'used', after, 'grant', ARGV[6])
redis.call('HSET', waiting, id, place, key ~= '' and key or id, place)
if ledger == '0' then
  redis.call('HSET', waiting, 'n', ARGV[7])
end
for _, field in ipairs(units_of) do
  redis.call('HINCRBY', waiting, field, ARGV[3])
end
return answer
