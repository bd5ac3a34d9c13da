-- The lapses of holds are recorded soon after their ends, also if no claim comes: a sweep reads the ends
-- in this order.
CREATE INDEX entry_details_ends ON entry_details (held_until, id) WHERE held_until IS NOT NULL;

-- How far the sweep came, and how many turns instances took: one instance at a time sweeps. One row. The
-- first sweep reads every hold.
CREATE TABLE lapses_mark (
    singleton integer PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    recorded_until integer NOT NULL,
    turn integer NOT NULL
) STRICT;
INSERT INTO lapses_mark (recorded_until, turn) VALUES (0, 0);
