-- Removes grants of one account that are in the ledger now from the queue, and settles the counter,
-- in one step. Safe to run twice. line.lua and queue.lua are put before it.
--
-- Invariant: nobody sees the units of these grants twice, and nobody misses them.
--
-- KEYS      as in count.lua
-- ARGV[1]   the number of grants
-- ARGV[2…]  five for each grant: its place in the queue; `i` and its entry's id; `k` and its key's
--           id, '' without a key; its units; and its windows' fields in the waiting hash, separated
--           by spaces. Then the arguments of `settle`
-- returns   how many grants were still queued

local counter, waiting, queue = KEYS[1], KEYS[2], KEYS[3]
local last = 5 * tonumber(ARGV[1])

-- 1. Remove the grants from the queue. A second run finds none of them.
local count, fields, taken = 0, {'n'}, {}
for index = 2, last, 5 do
  if entry_at(queue, ARGV[index], 'id', ARGV[index + 1]) then
    redis.call('XDEL', queue, ARGV[index])
    count = count + 1
    fields[#fields + 1] = ARGV[index + 1]
    fields[#fields + 1] = ARGV[index + 2]
    for field in string.gmatch(ARGV[index + 4], '%S+') do
      taken[field] = (taken[field] or 0) + tonumber(ARGV[index + 3])
    end
  end
end

-- 2. Remove their units, ids and keys from the waiting hash.
if count > 0 then
  for field, units in pairs(taken) do
    if redis.call('HINCRBY', waiting, field, string.format('%.0f', -units)) <= 0 then
      fields[#fields + 1] = field
    end
  end
  redis.call('HDEL', waiting, unpack(fields))
  -- Delete an empty queue: without a queue nothing waits, whatever an account's hash says.
  if redis.call('XLEN', queue) == 0 then
    redis.call('DEL', queue)
  end
end
-- 3. Settle the counter with the account's last line.
settle(counter, {unpack(ARGV, last + 2)})
return count
