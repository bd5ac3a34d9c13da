-- Takes grants of one account off the queue that the ledger holds now, and settles the counter,
-- in one step: nobody sees their units twice or not at all. Safe to run twice. Begins with
-- line.lua.
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
  local entry = redis.call('XRANGE', queue, ARGV[index], ARGV[index])[1]
  local grant = {place = ARGV[index]}
  for field = 1, entry and #entry[2] or 0, 2 do
    grant[entry[2][field]] = entry[2][field + 1]
  end
  if grant.id == ARGV[index + 1] then
    found[#found + 1] = grant
  end
end

for _, grant in ipairs(found) do
  redis.call('XDEL', queue, grant.place)
  redis.call('HDEL', waiting, grant.id, grant.key)
  for name in string.gmatch(grant.windows, '%S+') do
    if redis.call('HINCRBY', waiting, 'u' .. name, -tonumber(grant.units)) <= 0 then
      redis.call('HDEL', waiting, 'u' .. name)
    end
  end
end
if redis.call('XLEN', queue) == 0 then
  redis.call('DEL', queue)
end
settle(counter, {unpack(ARGV, 2 * count + 2)})
return #found
