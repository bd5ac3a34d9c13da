-- Sets aside a place of the queue that cannot be recorded: its fields move to a stream of their own,
-- where people can look at them, and its account no longer waits for it. Safe to run twice.
-- queue.lua is put before it.
--
-- KEYS[1]  the bucket's queue
-- KEYS[2]  the bucket's stream of things that were set aside
-- KEYS[3]  the waiting hash of the grant's account, if the grant can be read
-- ARGV[1]  the place in the queue
-- ARGV[2]  `i` and the entry's id, if the grant can be read
-- returns  1 if it was at the place, 0 if not

local queue, waiting, place = KEYS[1], KEYS[3], ARGV[1]
local entry = entry_at(queue, place, 'id', ARGV[2])
if not entry then
  return 0
end
local fields, grant = entry[2], {}
for field = 1, #fields, 2 do
  grant[fields[field]] = fields[field + 1]
end

redis.call('XADD', KEYS[2], '*', 'place', place, unpack(fields))
redis.call('XDEL', queue, place)
if waiting then
  redis.call('HDEL', waiting, 'n', grant.id, grant.key)
  for name in string.gmatch(grant.windows or '', '%S+') do
    if redis.call('HINCRBY', waiting, 'u' .. name, -tonumber(grant.units)) <= 0 then
      redis.call('HDEL', waiting, 'u' .. name)
    end
  end
end
-- Delete an empty queue: without a queue nothing waits, whatever an account's hash says.
if redis.call('XLEN', queue) == 0 then
  redis.call('DEL', queue)
end
return 1
