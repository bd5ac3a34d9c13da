-- Smaller rows: `totals` is d3,1,1763654400+86400 where it was
-- [["day",3,1,1763654400,1763740800]]: a letter for the window's length (i is a minute), max,
-- used, the window's start in seconds since 1970 and its length in seconds; a semicolon between
-- limits. This writes the table anew.
CREATE FUNCTION short_totals(totals text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(
        CASE total ->> 0 WHEN 'minute' THEN 'i' ELSE left(total ->> 0, 1) END
            || (total ->> 1) || ',' || (total ->> 2) || ',' || (total ->> 3) || '+'
            || ((total ->> 4)::bigint - (total ->> 3)::bigint),
        ';' ORDER BY place
    )
    FROM json_array_elements(totals::json) WITH ORDINALITY AS totals (total, place)
$$;

-- These grow at their end, within a batch in no order: their pages need less room than others'.
ALTER INDEX entries_id SET (fillfactor = 94);
ALTER INDEX entries_policy SET (fillfactor = 94);

ALTER TABLE entries ALTER COLUMN totals TYPE text USING short_totals(totals);

DROP FUNCTION short_totals;
