-- Reports of reconciliations. `finished_at` stays NULL where the instance died under way.
-- Instants are microseconds since 1970; ids are 16 bytes.
CREATE TABLE reconciliations (
    id blob PRIMARY KEY,
    started_at integer NOT NULL,
    requested_by text,
    apply integer NOT NULL,
    finished_at integer,
    counters_compared text,
    accounts integer NOT NULL DEFAULT 0,
    entries integer NOT NULL DEFAULT 0,
    counters integer NOT NULL DEFAULT 0,
    differences integer NOT NULL DEFAULT 0,
    healed integer NOT NULL DEFAULT 0,
    alarms integer NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX reconciliations_applied ON reconciliations (started_at) WHERE apply;

-- What differed. `windows` holds the figures: [["day", start, end, found, expected], …],
-- instants in seconds since 1970. A subject's text stands beside its account, and not here.
CREATE TABLE differences (
    reconciliation blob NOT NULL REFERENCES reconciliations (id),
    position integer NOT NULL,
    kind text NOT NULL,
    account blob,
    found integer,
    expected integer,
    windows text NOT NULL,
    healed integer NOT NULL,
    PRIMARY KEY (reconciliation, position)
) STRICT;
