-- Takes grants of one account off the queue that the ledger holds now, and settles the counter,
-- in one step: nobody sees their units twice or not at all. Safe to run twice. Begins with
-- line.lua.
--
-- KEYS      as count.lua's
-- ARGV[1]   how many grants
-- ARGV[2…]  five for each: its place in the queue; `i` and its entry's id; `k` and its key's, ''
--           without one; its units; and its windows' fields in what waits, with spaces between.
--           Then what `settle` takes
-- returns   how many were still queued

local counter, waiting, queue = KEYS[1], KEYS[2], KEYS[3]
local last = 5 * tonumber(ARGV[1])

local count, fields, taken = 0, {'n'}, {}
for index = 2, last, 5 do
  if redis.call('XDEL', queue, ARGV[index]) == 1 then
    count = count + 1
    fields[#fields + 1] = ARGV[index + 1]
    fields[#fields + 1] = ARGV[index + 2]
    for field in string.gmatch(ARGV[index + 4], '%S+') do
      taken[field] = (taken[field] or 0) + tonumber(ARGV[index + 3])
    end
  end
end

if count > 0 then
  for field, units in pairs(taken) do
    if redis.call('HINCRBY', waiting, field, string.format('%.0f', -units)) <= 0 then
      fields[#fields + 1] = field
    end
  end
  redis.call('HDEL', waiting, unpack(fields))
  -- A queue that is empty is none: nothing waits in it, whatever an account's hash says.
  if redis.call('XLEN', queue) == 0 then
    redis.call('DEL', queue)
  end
end
settle(counter, {unpack(ARGV, last + 2)})
return count
