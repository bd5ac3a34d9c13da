-- Reports of reconciliations. `finished_at` stays NULL where the instance died under way.
CREATE TABLE reconciliations (
    id uuid PRIMARY KEY,
    started_at timestamptz NOT NULL,
    requested_by text,
    apply boolean NOT NULL,
    finished_at timestamptz,
    counters_compared text,
    accounts bigint NOT NULL DEFAULT 0,
    entries bigint NOT NULL DEFAULT 0,
    counters bigint NOT NULL DEFAULT 0,
    differences bigint NOT NULL DEFAULT 0,
    healed bigint NOT NULL DEFAULT 0,
    alarms bigint NOT NULL DEFAULT 0
);
CREATE INDEX reconciliations_applied ON reconciliations (started_at) WHERE apply;

-- What differed. `windows` holds the figures: [["day", start, end, found, expected], …],
-- instants in seconds since 1970. A subject's text stands beside its account, and not here.
CREATE TABLE differences (
    reconciliation uuid NOT NULL REFERENCES reconciliations (id),
    position integer NOT NULL,
    kind text NOT NULL,
    account uuid,
    found bigint,
    expected bigint,
    windows text NOT NULL,
    healed boolean NOT NULL,
    PRIMARY KEY (reconciliation, position)
);
