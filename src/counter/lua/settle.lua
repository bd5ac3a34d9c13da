-- Settles one counter. line.lua is put before it.
--
-- KEYS[1]  the account's counter
-- ARGV     the arguments of `settle`
-- returns  the result of `settle`

return settle(KEYS[1], ARGV)
