-- How a grant is read in its queue and taken off it. The scripts that need it begin with it, and
-- say what KEYS, ARGV and what it returns are.

-- The grant in a place of a queue, by its fields' names; nil where there is none.
local function read_grant(queue, place)
  local entry = redis.call('XRANGE', queue, place, place)[1]
  if not entry then
    return nil
  end
  local grant = {place = place, fields = entry[2]}
  for field = 1, #entry[2], 2 do
    grant[entry[2][field]] = entry[2][field + 1]
  end
  return grant
end

-- Takes a grant off its queue, and its units and names off what waits of its account.
local function take_off(waiting, queue, grant)
  redis.call('XDEL', queue, grant.place)
  redis.call('HDEL', waiting, 'n', grant.id, grant.key)
  for name in string.gmatch(grant.windows or '', '%S+') do
    if redis.call('HINCRBY', waiting, 'u' .. name, -tonumber(grant.units)) <= 0 then
      redis.call('HDEL', waiting, 'u' .. name)
    end
  end
end

-- A queue that is empty is none: nothing waits in it, whatever an account's hash says.
local function forget_if_empty(queue)
  if redis.call('XLEN', queue) == 0 then
    redis.call('DEL', queue)
  end
end
