-- Settles one counter. Begins with line.lua.
--
-- KEYS[1]  the account's counter
-- ARGV     what `settle` takes
-- returns  what `settle` returns

return settle(KEYS[1], ARGV)
