-- Sets something aside that cannot be recorded: it moves to a stream of its own, for people to
-- look at, and its account waits for it no more. Safe to run twice. Begins with queue.lua.
--
-- KEYS[1]  the bucket's queue
-- KEYS[2]  the bucket's stream of what was set aside
-- KEYS[3]  what of the grant's account waits, where the grant can be read
-- ARGV[1]  its place in the queue
-- returns  1 when it was there, 0 when not

local grant = read_grant(KEYS[1], ARGV[1])
if not grant then
  return 0
end
redis.call('XADD', KEYS[2], '*', 'place', ARGV[1], unpack(grant.fields))
if KEYS[3] then
  take_off(KEYS[3], KEYS[1], grant)
else
  redis.call('XDEL', KEYS[1], ARGV[1])
end
forget_if_empty(KEYS[1])
return 1
