-- Statistics: figures of each policy and local day. They are made from the entries, in the order of
-- the record, and can be made again: delete the rows of day_figures, and set the position to 0.
--
-- `counted_on` is the local day on which the entries count, `recorded_on` the one on which they got
-- their positions. Days are texts like 2026-11-03. A figure that is 0 has no row.
CREATE TABLE day_figures (
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    recorded_on text NOT NULL,
    figure text NOT NULL,
    value integer NOT NULL CHECK (value > 0),
    PRIMARY KEY (policy, counted_on, recorded_on, figure)
) STRICT;
CREATE INDEX day_figures_days ON day_figures (counted_on, policy);

-- The position up to which entries are in the figures. One row.
CREATE TABLE day_figures_mark (
    singleton integer PRIMARY KEY DEFAULT 1 CHECK (singleton = 1),
    position integer NOT NULL
) STRICT;
INSERT INTO day_figures_mark (position) VALUES (0);

-- Days whose figures are not in the record: an hour after `ends_at`, and after they changed last, an act
-- tells them there, and the row goes.
CREATE TABLE open_days (
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    ends_at integer NOT NULL,
    changed_at integer NOT NULL,
    PRIMARY KEY (policy, counted_on)
) STRICT;
CREATE INDEX open_days_end ON open_days (ends_at);

-- How many claims an instance denied, from its start on. `not_kept` counts denials that might have been
-- the first of their window, but came too fast to have a row in first_denials.
CREATE TABLE denied_claims (
    run blob NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    denied integer NOT NULL,
    not_kept integer NOT NULL,
    PRIMARY KEY (run, policy, counted_on)
) STRICT;
CREATE INDEX denied_claims_days ON denied_claims (counted_on, policy);

-- The first denial of an account in a window, for 30 days. `totals` is as in `entries`; `per` and
-- `window_start` name the window that lacked room.
CREATE TABLE first_denials (
    account blob NOT NULL,
    per text NOT NULL,
    window_start integer NOT NULL,
    denied_at integer NOT NULL,
    units integer NOT NULL,
    policy_version integer NOT NULL,
    totals text NOT NULL,
    PRIMARY KEY (account, per, window_start)
) STRICT;
CREATE INDEX first_denials_at ON first_denials (denied_at);
