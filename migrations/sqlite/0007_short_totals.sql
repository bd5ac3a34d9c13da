-- Smaller rows: `totals` is d3,1,1763654400+86400 where it was
-- [["day",3,1,1763654400,1763740800]]: a letter for the window's length (i is a minute), max,
-- used, the window's start in seconds since 1970 and its length in seconds; a semicolon between
-- limits.
DROP TRIGGER entries_are_append_only_update;

UPDATE entries SET totals = (
    SELECT group_concat(short, ';') FROM (
        SELECT CASE value ->> 0 WHEN 'minute' THEN 'i' ELSE substr(value ->> 0, 1, 1) END
            || (value ->> 1) || ',' || (value ->> 2) || ',' || (value ->> 3) || '+'
            || ((value ->> 4) - (value ->> 3)) AS short
        FROM json_each(entries.totals) ORDER BY key
    )
);

CREATE TRIGGER entries_are_append_only_update BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only');
END;
