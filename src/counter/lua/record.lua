-- Takes grants of one account off the queue that the ledger holds now, and settles the counter,
-- in one step: nobody sees their units twice or not at all. Safe to run twice. Begins with
-- line.lua and queue.lua.
--
-- KEYS      as count.lua's
-- ARGV[1]   how many grants
-- ARGV[2…]  two for each: its place in the queue, and `i` and its entry's id; then what `settle`
--           takes
-- returns   how many were still queued

local counter, waiting, queue = KEYS[1], KEYS[2], KEYS[3]
local count = tonumber(ARGV[1])

local found = {}
for index = 2, 2 * count, 2 do
  local grant = read_grant(queue, ARGV[index])
  if grant and grant.id == ARGV[index + 1] then
    found[#found + 1] = grant
  end
end

for _, grant in ipairs(found) do
  take_off(waiting, queue, grant)
end
forget_if_empty(queue)
settle(counter, {unpack(ARGV, 2 * count + 2)})
return #found
