-- The ledger: accounts with numbered, append-only entries, and around them what decides claims (policies,
-- overrides, keys) and what shows later that nobody changed the past (record, acts, seals).
--
-- This file has first the tables, each with its indexes, then the views, the functions, and at its end the
-- triggers. Instants come from perdiem's clock: no column takes the time from the database.
--
-- Revisions: each change (a version of a policy, key or override, or an act) takes the next revision of the
-- ledger. Transactions: `xact` is the number of the transaction that appended an entry or a change, plus an
-- offset. Together they give the record its one order.

-- One row: who this ledger is. `secret` keys the hashes that are the ids of accounts and keys. `revision`
-- counts changes; the lock of its row puts them in one order. `erasures` counts how often accounts got other
-- ids: each append compares it with what it was when the last lines were read (erasure_epoch). In another
-- cluster the numbers of transactions begin low again; `xact_offset` is added to them, so that the order goes on.
CREATE TABLE ledger (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id uuid NOT NULL,
    secret bytea NOT NULL CHECK (octet_length(secret) = 32),
    revision bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    xact_offset bigint NOT NULL DEFAULT 0,
    erasures bigint NOT NULL DEFAULT 0
);


-- Policies.

CREATE TABLE policies (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- `rule` is JSON: the limits, the time zone, and all else that decides. In force at an instant is the highest
-- version whose `effective_at` is not after it.
--
-- `xact` is a default here and below, because the service has no right to set it: nobody chooses the place of a
-- change in the record.
CREATE TABLE policy_versions (
    policy integer NOT NULL REFERENCES policies (id),
    version integer NOT NULL CHECK (version > 0),
    revision bigint NOT NULL UNIQUE,
    rule text NOT NULL,
    archived boolean NOT NULL,
    effective_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    PRIMARY KEY (policy, version)
);
CREATE INDEX policy_versions_xact ON policy_versions (xact, revision);


-- Overrides and blocks: another `max` for one subject of a policy, or none at all.

-- The subject's text is here and not beside the versions, so that a person can be erased. An override can come
-- before entry 1 of its account. `blind` is 16 random bytes, for leaves that survive the erasure.
CREATE TABLE overrides (
    account uuid PRIMARY KEY,
    policy integer NOT NULL REFERENCES policies (id),
    subject text COLLATE "C",
    blind uuid NOT NULL
);
CREATE INDEX overrides_policy ON overrides (policy, account);
CREATE INDEX overrides_subject ON overrides (policy, subject) WHERE subject IS NOT NULL;

-- A version changes the override, the block or the tier: `kind` says which. `limits` has what is new
-- (src/ledger/subject_encoding.rs), and `until` is the end of it.
CREATE TABLE override_versions (
    account uuid NOT NULL REFERENCES overrides (account),
    version integer NOT NULL CHECK (version > 0),
    revision bigint NOT NULL UNIQUE,
    limits text,
    until timestamptz,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    kind text NOT NULL GENERATED ALWAYS AS (CASE
        WHEN substr(limits, 1, 11) = '{"blocked":' THEN 'block'
        WHEN substr(limits, 1, 8) = '{"tier":' THEN 'tier'
        ELSE 'override'
    END) STORED,
    PRIMARY KEY (account, version)
);
CREATE INDEX override_versions_xact ON override_versions (xact, revision);
CREATE INDEX override_versions_kind ON override_versions (kind, revision);


-- API keys.

-- `number` is a key's small number, from 1 on: an entry has it in `claimed_by`. Number 0 is the key of the
-- settings, which has no row.
CREATE TABLE keys (
    id uuid PRIMARY KEY,
    number integer NOT NULL CONSTRAINT keys_number UNIQUE,
    secret_hash bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL
);

-- `policies` is a JSON array of the names that the key is confined to; NULL: all policies. `bounds` is a JSON
-- object with the bounds of a support key; NULL for every other role.
CREATE TABLE key_versions (
    key uuid NOT NULL REFERENCES keys (id),
    version integer NOT NULL CHECK (version > 0),
    revision bigint NOT NULL UNIQUE,
    name text NOT NULL,
    role text NOT NULL,
    policies text,
    bounds text,
    ends_at timestamptz,
    revoked boolean NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    PRIMARY KEY (key, version)
);
CREATE INDEX key_versions_xact ON key_versions (xact, revision);

-- The days (of UTC) on which a key was used. An instance adds a day some seconds after the first use on it. The
-- rows are no part of the record.
CREATE TABLE key_uses (
    key uuid NOT NULL REFERENCES keys (id),
    used_on text NOT NULL,
    PRIMARY KEY (key, used_on)
);


-- Accounts: one for each subject of each policy.

-- `id` is a hash of policy and subject. Except for overrides this is the one place where a subject's text is
-- stored, so that a person can be erased without changing totals. `blind` is 16 random bytes, for leaves that
-- survive the erasure; perdiem makes them, because a default would cost 2 µs a row.
CREATE TABLE accounts (
    id uuid PRIMARY KEY,
    policy integer NOT NULL,
    subject text COLLATE "C",
    blind uuid NOT NULL
);
-- Subjects are searched by their beginnings, in the order of their bytes.
CREATE INDEX accounts_subject ON accounts (policy, subject) WHERE subject IS NOT NULL;


-- Entries.

-- What each kind of entry does. The program has the same rows (src/domain/kind.rs). Statements read here what a kind
-- does, and name by its number only a grant (1).
CREATE TABLE entry_kinds (
    kind smallint PRIMARY KEY,
    word text NOT NULL UNIQUE,
    -- What the units do in a sum of the usage.
    sign smallint NOT NULL CHECK (sign IN (-1, 0, 1)),
    names_grant boolean NOT NULL,
    -- Whether a hold that the entry names is no longer open.
    ends_hold boolean NOT NULL CHECK (names_grant OR NOT ends_hold),
    -- The state of the grant that the entry names, if nothing of it is left.
    closes_as text CHECK (ends_hold OR closes_as IS NULL),
    -- Whether the line has the instant of the clock.
    of_clock boolean NOT NULL
);
INSERT INTO entry_kinds (kind, word, sign, names_grant, ends_hold, closes_as, of_clock) VALUES
    (1, 'grant', 1, false, false, NULL, true),
    (2, 'confirmation', 0, true, true, NULL, true),
    (3, 'reversal', -1, true, true, 'reversed', true),
    (4, 'lapse', -1, true, true, 'lapsed', false),
    (5, 'adjustment_up', 1, false, false, NULL, true),
    (6, 'adjustment_down', -1, false, false, NULL, true),
    (7, 'partial_reversal', -1, true, false, NULL, true),
    (8, 'reset', 0, false, false, NULL, true),
    (9, 'calendar', 0, false, false, NULL, true),
    (10, 'top_up', 0, false, false, NULL, true),
    (11, 'top_up_reversal', 0, true, false, NULL, true);

-- One row an entry, numbered without gaps in its account. The last entry of an account is its last line: it is
-- enough for the next decision.
--
-- `id` begins with the milliseconds at which the entry counts. `at` is the instant of the line, never before
-- that of the line before; of a provisional grant or a lapse it can be later than the instant in the id.
-- `key` is the hash of the Idempotency-Key. `claimed_by` is the number of the key that claimed or corrected;
-- NULL for a lapse. `lapses_at` belongs to the line: no open hold of the account lapses before it.
--
-- `flags` is a sum: 1 for a grant that Redis alone decided (provisional), 2 if such a grant went over a limit,
-- 4 for a grant that an observing policy would have denied, 8 for an entry whose texts were erased.
--
-- `totals` holds what each limit's window held after the entry, with a semicolon between limits:
-- d3,1,1763654400+86400 is a letter for the window's length (a day; i is a minute), max, used, the window's
-- start in seconds since 1970, and its length in seconds. Limits of other kinds have other letters
-- (src/domain/limit/text.rs). The zone and the anchor that the account has of its own come before them:
-- @Asia/Tokyo,20484; is the zone and the anchor, in days since 1970. Its top-ups come first: +2:…; means that 2 units of
-- the entry came from top-ups or returned to them, and count in no window (src/domain/line_text.rs).
--
-- The columns are in this order because PostgreSQL aligns them: another one makes each row longer. No foreign
-- keys: they would lock the row of a policy or a kind for each claim.
CREATE TABLE entries (
    number bigint NOT NULL CHECK (number > 0),
    at timestamptz NOT NULL,
    units bigint NOT NULL CHECK (units > 0),
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    policy integer NOT NULL,
    policy_version integer NOT NULL,
    claimed_by integer,
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 11),
    flags smallint NOT NULL,
    account uuid NOT NULL,
    id uuid NOT NULL,
    key uuid,
    lapses_at timestamptz,
    totals text NOT NULL,
    metadata text,
    PRIMARY KEY (account, number)
);
-- Entries are found by the first six bytes of their ids, which are their milliseconds. PostgreSQL stores equal
-- index keys once, so this takes about 8 bytes an entry in a busy ledger, where the whole id took 30. Nothing
-- depends on ids being unique: an entry that is sent twice has the same number both times, and the primary key
-- refuses it. This index and the next one grow at their end, within a batch in no order, so their pages need
-- less free room than others.
CREATE INDEX entries_id ON entries (substring(uuid_send(id), 1, 6)) WITH (fillfactor = 94);
-- A policy's entries by the first five bytes of their ids, which are their quarters of a second (256 ms). This
-- takes about 10 bytes an entry, where (policy, id) took 40 to 70.
CREATE INDEX entries_policy ON entries (policy, substring(uuid_send(id), 1, 5))
    WITH (fillfactor = 94);
-- No two grants of a policy have the same Idempotency-Key.
CREATE UNIQUE INDEX entries_key ON entries (key) WHERE key IS NOT NULL;
CREATE INDEX entries_provisional ON entries (id) WHERE (flags & 1) <> 0;
CREATE INDEX entries_would_deny ON entries (id) WHERE (flags & 4) <> 0;
CREATE INDEX entries_crossed ON entries (id) WHERE flags >= 16;
-- The follower of the record reads the newest entries; a BRIN index would not know their pages yet. This index
-- grows at its end only: its pages may be full.
CREATE INDEX entries_xact ON entries (xact) WITH (fillfactor = 100);


-- Details of entries.

-- What few entries have: the grant that they name, the end of a hold, who corrected something and why, the limit
-- that a reset names, and the bundle of a grant. `id` and `kind` are those of the entry.
CREATE TABLE entry_details (
    account uuid NOT NULL,
    number bigint NOT NULL,
    id uuid NOT NULL,
    kind smallint NOT NULL CHECK (kind BETWEEN 1 AND 11),
    of_grant uuid,
    held_until timestamptz,
    made_by text,
    reason text,
    per text,
    bundle uuid,
    PRIMARY KEY (account, number),
    CONSTRAINT entry_details_name_grant CHECK ((of_grant IS NOT NULL) = (kind IN (2, 3, 4, 7, 11))),
    CONSTRAINT entry_details_name_limit CHECK (per IS NULL OR kind = 8),
    CONSTRAINT entry_details_name_bundle CHECK (bundle IS NULL OR kind = 1)
);
-- A grant has at most one confirmation (kind 2), at most one entry that closes it (kinds 3 and 4), and any
-- number of partial reversals (kind 7). A top-up has at most one entry that takes it back (kind 11).
CREATE UNIQUE INDEX entry_details_of_grant
    ON entry_details (of_grant, (CASE kind WHEN 7 THEN number WHEN 2 THEN 0 ELSE -1 END))
    WHERE of_grant IS NOT NULL;
CREATE INDEX entry_details_held ON entry_details (account, held_until)
    WHERE held_until IS NOT NULL;
CREATE INDEX entry_details_holds ON entry_details (id) WHERE held_until IS NOT NULL;
-- The sweep records lapses soon after the ends of holds, also if no claim comes: it reads the ends in this order.
CREATE INDEX entry_details_ends ON entry_details (held_until, id) WHERE held_until IS NOT NULL;
-- Entries of the kinds that few entries have are listed by kind, over all policies and days.
CREATE INDEX entry_details_kinds ON entry_details (kind, id) WHERE kind <> 1;
CREATE INDEX entry_details_bundle ON entry_details (bundle) WHERE bundle IS NOT NULL;

-- How far the sweep came, and how many turns instances took: one instance at a time sweeps. One row. The first
-- sweep reads every hold.
CREATE TABLE lapses_mark (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    recorded_until timestamptz NOT NULL,
    turn bigint NOT NULL
);
INSERT INTO lapses_mark (recorded_until, turn) VALUES ('epoch', 0);

-- The usage of limits that all subjects of a policy share, a row a window: the sum of the entries in it that
-- versions from `since` on decided. An append locks the row and changes it with its entries. It is derived: the
-- entries say the same. The window without an end starts at the epoch.
CREATE TABLE shared_use (
    policy integer NOT NULL REFERENCES policies (id),
    since integer NOT NULL,
    per text NOT NULL,
    starts_at timestamptz NOT NULL,
    used bigint NOT NULL,
    PRIMARY KEY (policy, since, per, starts_at)
);


-- The record: one order of all entries and all changes, which never changes.
--
-- An entry or a change has a place: its transaction (`xact`), then its id. A change has the highest uuid as its
-- id, and then its revision. The account is not part of the place: it is replaced when a subject is erased, and
-- an order of accounts would tell who it was. A follower gives the positions 1, 2, 3 … in the order of places,
-- behind the oldest transaction that is still open.

-- A mark gives the positions above `after` and up to `position` to the places up to (xact, id, revision).
-- `recorded_at` is when it gave them. The primary key keeps two followers from going on from one position.
CREATE TABLE record_marks (
    after bigint PRIMARY KEY CHECK (after >= 0),
    position bigint NOT NULL UNIQUE CHECK (position > after),
    xact bigint NOT NULL,
    id uuid NOT NULL,
    revision bigint NOT NULL,
    recorded_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX record_marks_place ON record_marks (xact, id, revision);
CREATE INDEX record_marks_recorded ON record_marks (recorded_at, after);


-- Statistics: figures of each policy and local day, made from the entries in the order of the record. Days are
-- texts like 2026-11-03.

-- `counted_on` is the local day on which the entries count, `recorded_on` the one on which they got their
-- positions. A figure that is 0 has no row. A figure only grows, on a day that is open (the triggers
-- `day_figures_…`). Pages are left half empty, so that a figure that grows stays in its page and in its place of the
-- indexes.
CREATE TABLE day_figures (
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    recorded_on text NOT NULL,
    figure text NOT NULL,
    value bigint NOT NULL CHECK (value > 0),
    PRIMARY KEY (policy, counted_on, recorded_on, figure)
) WITH (fillfactor = 50);
CREATE INDEX day_figures_days ON day_figures (counted_on, policy);

-- The position up to which entries are in the figures. One row. To make the figures again, the owner of the
-- tables sets it to 0. Figures that were recorded up to the day `kept_to` cannot be made again, because their
-- entries may be dropped.
CREATE TABLE day_figures_mark (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    position bigint NOT NULL,
    kept_to text
);
INSERT INTO day_figures_mark (position) VALUES (0);

-- Days whose figures are not in the record yet. An hour after `ends_at`, and after they changed last, an act
-- tells them there, and the row goes. So a figure that was told changes only with another act.
CREATE TABLE open_days (
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    ends_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (policy, counted_on)
);
CREATE INDEX open_days_end ON open_days (ends_at);

-- How many claims an instance denied, from its start (`run`) on. `not_kept` counts denials that might have been
-- the first of their window, but came too fast to have a row in first_denials.
CREATE TABLE denied_claims (
    run uuid NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    counted_on text NOT NULL,
    denied bigint NOT NULL,
    not_kept bigint NOT NULL,
    PRIMARY KEY (run, policy, counted_on)
);
CREATE INDEX denied_claims_days ON denied_claims (counted_on, policy);

-- The first denial of an account in a window, for 30 days. `per` and `window_start` name the window that lacked
-- room. `totals` is as in `entries`.
CREATE TABLE first_denials (
    account uuid NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    per text NOT NULL,
    window_start timestamptz NOT NULL,
    denied_at timestamptz NOT NULL,
    units bigint NOT NULL,
    policy_version integer NOT NULL,
    totals text NOT NULL,
    PRIMARY KEY (account, per, window_start)
);
CREATE INDEX first_denials_at ON first_denials (denied_at);
CREATE INDEX first_denials_policy ON first_denials (policy, denied_at);

-- Charts: the figures of each policy and quarter hour of UTC, for 14 days. No part of the record. Entries count in
-- the quarter hour of their own instant. `given_back_units` are those of reversals and lapses. What is made with
-- `day_figures` goes and is made again with it.
CREATE TABLE quarter_figures (
    policy integer NOT NULL REFERENCES policies (id),
    starts_at timestamptz NOT NULL,
    grants bigint NOT NULL,
    units bigint NOT NULL,
    given_back_units bigint NOT NULL,
    PRIMARY KEY (policy, starts_at)
);
CREATE INDEX quarter_figures_start ON quarter_figures (starts_at, policy);

-- How many claims an instance denied in a quarter hour, in a run as in `denied_claims`.
CREATE TABLE quarter_denials (
    run uuid NOT NULL,
    policy integer NOT NULL REFERENCES policies (id),
    starts_at timestamptz NOT NULL,
    denied bigint NOT NULL,
    PRIMARY KEY (policy, starts_at, run)
);
CREATE INDEX quarter_denials_start ON quarter_denials (starts_at, policy);


-- Acts: what somebody did with the record, such as an export or an erasure.

-- `about` is JSON: what exactly was done. `blind` is 16 random bytes, for leaves that survive an erasure.
CREATE TABLE acts (
    revision bigint PRIMARY KEY,
    kind text NOT NULL,
    about text NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    reason text,
    blind uuid NOT NULL,
    xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint
);
CREATE INDEX acts_xact ON acts (xact, revision);
CREATE INDEX acts_kind ON acts (kind, revision);
CREATE INDEX acts_cuts ON acts (revision) WHERE kind = 'cut';
-- Reads of a subject, for whoever asks who looked at it, and for its erasure.
CREATE INDEX acts_reads ON acts ((about::json #>> '{filters,subject}'), revision) WHERE kind = 'read';


-- Seals: a log of leaves, one for each position of the record, in a Merkle tree (RFC 6962).

-- The names of the log: `name` is the first line of its checkpoints. Number 1 is the first one; a restart begins
-- the next, with all leaves again.
CREATE TABLE seal_origins (
    number bigint PRIMARY KEY CHECK (number > 0),
    name text NOT NULL UNIQUE,
    begun_at timestamptz NOT NULL
);

-- The hashes of the tree, 32 bytes each. Those of level 0 are of leaves; each of a higher level is of a full
-- tile (256 hashes) of the level below. A row has the hashes from the one with the index `first` on, at most up
-- to the end of their tile. The primary key keeps two sealers from going on from one hash.
CREATE TABLE seal_hashes (
    origin bigint NOT NULL REFERENCES seal_origins (number),
    level smallint NOT NULL,
    first bigint NOT NULL CHECK (first >= 0),
    hashes bytea NOT NULL CHECK (octet_length(hashes) BETWEEN 32 AND 8192),
    PRIMARY KEY (origin, level, first)
);

-- Checkpoints: `note` is the signed text of the tree with the first `size` leaves.
CREATE TABLE seals (
    origin bigint NOT NULL REFERENCES seal_origins (number),
    size bigint NOT NULL CHECK (size > 0),
    note text NOT NULL,
    sealed_at timestamptz NOT NULL,
    PRIMARY KEY (origin, size)
);


-- Reconciliations.

-- `finished_at` stays NULL if the instance died before the end. `ledger` says whether the whole ledger is
-- checked, or a part of it: what is new above the position `checked_to` of the report before, and the accounts
-- from its `next_account` on.
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
    alarms bigint NOT NULL DEFAULT 0,
    ledger text NOT NULL,
    checked_to bigint,
    next_account uuid
);
CREATE INDEX reconciliations_applied ON reconciliations (started_at) WHERE apply;
CREATE INDEX reconciliations_finished ON reconciliations (finished_at);

-- What differed: an account, or a `figure` of a policy and a day, which has no account. `windows` holds the
-- values of an account: [["day", start, end, found, expected], …], instants in seconds since 1970. A subject's
-- text is beside its account, and not here.
CREATE TABLE differences (
    reconciliation uuid NOT NULL REFERENCES reconciliations (id),
    position integer NOT NULL,
    kind text NOT NULL,
    account uuid,
    policy integer,
    counted_on text,
    figure text,
    found bigint,
    expected bigint,
    windows text NOT NULL,
    healed boolean NOT NULL,
    PRIMARY KEY (reconciliation, position)
);


-- Erasure of subjects, in two steps: their texts at once, and the ids of their accounts once the windows of
-- their last lines are over. What was erased stays provable, because its leaves keep digests.

-- The accounts that are being erased. `account` becomes the random `replacement`. `subject` is the name that
-- the account had, while its texts are being erased: the digests of its leaves are made with it, and no view
-- shows it. `revision` is the act that erased.
--
-- `step` is 1 while texts are erased; 2 until the account gets its new id; 3 until its counter is forgotten; 4
-- until its keys are cleared, and then the row is deleted. `done` is the number of the last entry that a step
-- has done. `override_ended` says that the account's override was ended.
CREATE TABLE erasing_accounts (
    replacement uuid PRIMARY KEY,
    account uuid NOT NULL,
    policy integer NOT NULL,
    subject text,
    revision bigint NOT NULL,
    step smallint NOT NULL CHECK (step BETWEEN 1 AND 4),
    done bigint NOT NULL DEFAULT 0,
    override_ended boolean NOT NULL DEFAULT false,
    due_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX erasing_accounts_account ON erasing_accounts (account) WHERE step < 3;
CREATE INDEX erasing_accounts_old ON erasing_accounts (account);
CREATE INDEX erasing_accounts_due ON erasing_accounts (due_at);

-- What a leaf keeps of texts that were erased: the digest of its private part. `id` is an entry's id; that of a
-- change has its revision in the last 8 bytes, and 8 zeros before them.
CREATE TABLE erased_leaves (
    id uuid PRIMARY KEY,
    private bytea NOT NULL CHECK (octet_length(private) = 32)
);

-- What the leaves of an account keep of the `blind` that was erased.
CREATE TABLE erased_accounts (
    account uuid PRIMARY KEY,
    pseudonym bytea NOT NULL CHECK (octet_length(pseudonym) = 32)
);


-- Archives and cuts. Entries that were archived can be dropped, up to a cut: an act of the kind `cut`, which is
-- sealed, and which tells the archive's last position. Of its entries up to that position an account keeps the
-- last one, and all from its first hold on that was open then.

-- The places of entries that were dropped: their positions, and the hashes of their leaves, stay. There is no
-- account here, so there is nothing to erase. `revision` is the cut, and `bundle` that of a grant.
CREATE TABLE dropped_entries (
    xact bigint NOT NULL,
    id uuid NOT NULL,
    revision bigint NOT NULL REFERENCES acts (revision),
    policy integer NOT NULL,
    bundle uuid,
    PRIMARY KEY (xact, id)
);
CREATE UNIQUE INDEX dropped_entries_id ON dropped_entries (id);
CREATE INDEX dropped_entries_bundle ON dropped_entries (bundle) WHERE bundle IS NOT NULL;

-- `entry` is the first one that its account still has; the last one before it was appended at `at`.
CREATE TABLE cuts (
    entry uuid PRIMARY KEY,
    at timestamptz NOT NULL,
    revision bigint NOT NULL REFERENCES acts (revision)
);


-- Instances.

-- The instances that serve this ledger now, and whose rules of time zones they use.
CREATE TABLE instances (
    id uuid PRIMARY KEY,
    zone_rules text NOT NULL,
    seen_at timestamptz NOT NULL
);


-- Views: what statements of perdiem share, and what people and programs may read beside the API
-- (docs/operations/views.md). PostgreSQL and SQLite have the same views with the same columns.
--
-- `policy_id` is the number of a policy, and `policy` its name. A view that few tables make is cheap where a
-- statement chooses rows by it; the others name what stands beside the chosen rows.

-- An entry with its details.
CREATE VIEW entry_rows AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id, e.policy_version, e.kind, e.units, e.flags, e.key,
    e.claimed_by, e.lapses_at, e.totals, e.metadata, e.xact, d.of_grant, d.held_until, d.made_by, d.reason, d.per,
    d.bundle
FROM entries AS e
LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number;

-- An entry with the grant that it names, and with the instant in whose windows it counts, as an id: its own id,
-- or that of the grant. Most entries are grants, which name none, so their details are not read.
CREATE VIEW counted_entries AS
SELECT e.account, e.number, e.id, e.at, e.policy_id, e.policy_version, e.kind, e.units, e.flags, e.key,
    e.claimed_by, e.lapses_at, e.totals, e.metadata, e.xact, e.of_grant, COALESCE(e.of_grant, e.id) AS counted_id
FROM (
    SELECT entries.account, entries.number, entries.id, at, policy AS policy_id, policy_version, entries.kind,
        units, flags, key, claimed_by, lapses_at, totals, metadata, xact, CASE WHEN entries.kind <> 1 THEN (
            SELECT of_grant FROM entry_details AS d
            WHERE d.account = entries.account AND d.number = entries.number
        ) END AS of_grant
    FROM entries
) AS e;

-- An API key with its present name.
CREATE VIEW named_keys AS
SELECT k.id, k.number, (
    SELECT v.name FROM key_versions AS v WHERE v.key = k.id ORDER BY v.version DESC LIMIT 1
) AS name
FROM keys AS k;

-- An entry with its details and the names of all that it has by number. `subject` is NULL after an erasure.
CREATE VIEW listed_entries AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id, p.name AS policy, e.policy_version, a.subject,
    e.kind, e.units, e.flags, e.key, e.claimed_by, k.id AS made_by_key, k.name AS made_by_name, e.lapses_at,
    e.totals, e.metadata, e.xact, d.of_grant, COALESCE(d.of_grant, e.id) AS counted_id, d.held_until, d.made_by,
    d.reason, d.per, d.bundle
FROM entries AS e
LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
JOIN policies AS p ON p.id = e.policy
JOIN accounts AS a ON a.id = e.account
LEFT JOIN named_keys AS k ON k.number = e.claimed_by;

-- An entry that names the grant `of_grant`, with what its kind does.
CREATE VIEW followers AS
SELECT d.of_grant, d.account, d.number, d.id, e.at, d.kind, k.sign, k.ends_hold, k.closes_as, e.units, d.made_by,
    d.reason
FROM entry_details AS d
JOIN entries AS e ON e.account = d.account AND e.number = d.number
JOIN entry_kinds AS k ON k.kind = d.kind
WHERE d.of_grant IS NOT NULL;

-- An entry that gives a part of the grant `of_grant` back.
CREATE VIEW partial_reversals AS
SELECT d.of_grant, d.account, d.number, d.id, e.at, e.units
FROM entry_details AS d
JOIN entries AS e ON e.account = d.account AND e.number = d.number
WHERE d.kind IN (SELECT kind FROM entry_kinds WHERE sign < 0 AND closes_as IS NULL);

-- A grant, with what its state depends on: until when it is held, and as what an entry ended it ('granted' for a
-- hold that was confirmed). Without such an entry a hold is lapsed from `held_until` on.
CREATE VIEW grant_states AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id, e.units, e.flags, e.key, e.claimed_by, e.metadata, (
    SELECT d.held_until FROM entry_details AS d WHERE d.account = e.account AND d.number = e.number
) AS held_until, (
    SELECT COALESCE(max(k.closes_as), max('granted')) FROM entry_details AS f
    JOIN entry_kinds AS k ON k.kind = f.kind WHERE f.of_grant = e.id AND k.ends_hold
) AS ended_as
FROM entries AS e WHERE e.kind = 1;

-- A grant with its details and its names, and with the entries that name it: the confirmation, the one that closed
-- it, and the sum and the number of partial reversals. `state` is that of the record: a hold is 'held' until its
-- lapse is recorded.
CREATE VIEW grant_rows AS
SELECT e.account, e.number, e.id, e.at, e.policy AS policy_id,
    (SELECT p.name FROM policies AS p WHERE p.id = e.policy) AS policy, e.policy_version,
    (SELECT a.subject FROM accounts AS a WHERE a.id = e.account) AS subject,
    e.kind, e.units, e.flags, e.key, e.claimed_by, e.lapses_at, e.totals, e.metadata, e.xact,
    d.of_grant, d.held_until, d.made_by, d.reason, d.per, d.bundle,
    COALESCE((f.closing).closes_as, CASE
        WHEN d.held_until IS NULL OR (f.confirmation).id IS NOT NULL THEN 'granted' ELSE 'held'
    END) AS state,
    (f.confirmation).id AS confirmation, (f.confirmation).kind AS confirmation_kind,
    (f.confirmation).at AS confirmed_at, (f.confirmation).units AS confirmed_units,
    (f.confirmation).made_by AS confirmed_by,
    (f.closing).id AS closing, (f.closing).kind AS closing_kind, (f.closing).at AS closed_at,
    (f.closing).units AS closed_units, (f.closing).made_by AS closed_by, (f.closing).reason AS closing_reason,
    f.returned, f.parts
FROM entries AS e
LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
-- One look by the index finds all of them. Most grants have none.
CROSS JOIN LATERAL (
    SELECT (array_agg(f) FILTER (WHERE f.ends_hold AND f.closes_as IS NULL))[1] AS confirmation,
        (array_agg(f) FILTER (WHERE f.closes_as IS NOT NULL))[1] AS closing,
        COALESCE(sum(f.units) FILTER (WHERE f.sign < 0 AND f.closes_as IS NULL), 0)::bigint AS returned,
        (count(*) FILTER (WHERE f.sign < 0 AND f.closes_as IS NULL))::integer AS parts
    FROM followers AS f WHERE f.of_grant = e.id
) AS f
WHERE e.kind = 1;

-- A version of a policy.
CREATE VIEW policy_rows AS
SELECT v.policy AS policy_id, p.name AS policy, v.version, v.revision, v.rule, v.archived, v.effective_at,
    v.changed_at, v.changed_by, v.reason, v.xact
FROM policy_versions AS v JOIN policies AS p ON p.id = v.policy;

-- A version of an override, a block or a tier, with the policy and the subject. `subject` is NULL after an erasure.
CREATE VIEW override_rows AS
SELECT v.account, o.policy AS policy_id, p.name AS policy, o.subject, v.version, v.revision, v.kind, v.limits,
    v.until, v.changed_at, v.changed_by, v.reason, v.xact
FROM override_versions AS v
JOIN overrides AS o ON o.account = v.account
JOIN policies AS p ON p.id = o.policy;

-- A change: a version of a policy, a key, an override, a block or a tier, or an act, whose own kind it has.
CREATE VIEW change_rows AS
SELECT xact, revision, 'policy' AS kind, changed_at, changed_by, reason FROM policy_versions
UNION ALL SELECT xact, revision, 'key', changed_at, changed_by, reason FROM key_versions
UNION ALL SELECT xact, revision, kind, changed_at, changed_by, reason FROM override_versions
UNION ALL SELECT xact, revision, kind, changed_at, changed_by, reason FROM acts;


-- Functions of the service.
--
-- The service may append, and may not change what was appended (src/ledger/service_role.rs). What an erasure
-- changes, it changes by the functions here, which have the rights of the tables' owner.

-- How often accounts got other ids, as of now, and not as of the statement's snapshot. Until the transaction
-- ends no account gets another id.
CREATE FUNCTION erasure_epoch() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    epoch bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(112, 1);
    SELECT erasures INTO epoch FROM ledger;
    RETURN epoch;
END
$$;

-- The triggers check what these five functions do to entries, details and acts.
CREATE FUNCTION erase_entries(whose uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entries SET metadata = NULL, flags = flags | 8
    WHERE account = whose AND number > after AND number <= up_to
$$;

CREATE FUNCTION erase_entry_details(whose uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entry_details SET reason = NULL
    WHERE account = whose AND number > after AND number <= up_to AND reason IS NOT NULL
$$;

CREATE FUNCTION erase_act(erased bigint, erased_about text) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE acts SET about = erased_about WHERE revision = erased
$$;

CREATE FUNCTION replace_entries(whose uuid, replacing uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entry_details SET account = replacing, reason = NULL
    WHERE account = whose AND number > after AND number <= up_to;
    UPDATE entries SET account = replacing, metadata = NULL, flags = flags | 8
    WHERE account = whose AND number > after AND number <= up_to;
$$;

CREATE FUNCTION clear_keys(whose uuid, after bigint, up_to bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE entries SET key = NULL, flags = flags | 8
    WHERE account = whose AND number > after AND number <= up_to AND key IS NOT NULL
$$;

-- No trigger checks what the three functions after this one do. They call it: it refuses an account that no
-- act of erasure names.
CREATE FUNCTION want_erasure(whose uuid, replacing uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM erasing_accounts JOIN acts USING (revision)
        WHERE kind = 'erasure' AND account = whose AND replacement = COALESCE(replacing, replacement)
    ) THEN
        RAISE EXCEPTION 'this account is not being erased';
    END IF;
END
$$;

CREATE FUNCTION erase_names(whose uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    SELECT want_erasure(whose, NULL);
    UPDATE accounts SET subject = NULL WHERE id = whose;
    UPDATE override_versions SET reason = NULL WHERE account = whose;
    UPDATE overrides SET subject = NULL WHERE account = whose;
$$;

-- An account has no entries when it goes: those have the random id.
CREATE FUNCTION close_account(whose uuid, replacing uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    SELECT want_erasure(whose, replacing);
    DELETE FROM accounts WHERE id = whose
        AND NOT EXISTS (SELECT FROM entries WHERE account = whose);
    UPDATE differences SET account = replacing WHERE account = whose;
    UPDATE ledger SET erasures = erasures + 1;
$$;

CREATE FUNCTION replace_override(whose uuid, replacing uuid) RETURNS void
LANGUAGE sql SECURITY DEFINER AS $$
    SELECT want_erasure(whose, replacing);
    UPDATE override_versions SET account = replacing, reason = NULL WHERE account = whose;
    DELETE FROM overrides WHERE account = whose;
$$;


-- Functions of triggers. They check what a member of the service's role writes, so that no statement changes
-- the past, hides a change, or takes a place in the record that is not its own.

CREATE FUNCTION refuse_to_change_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries are append-only';
END
$$;

-- Whether this transaction records an erasure.
CREATE FUNCTION records_erasure() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM acts WHERE kind = 'erasure'
            AND xact = pg_current_xact_id()::text::bigint + (SELECT xact_offset FROM ledger)
    )
$$;

-- An update of an entry may only erase: its metadata and its key, and its account becomes the replacement. The
-- digest of what is erased is in erased_leaves.
CREATE FUNCTION let_entries_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.number, NEW.at, NEW.units, NEW.xact, NEW.policy, NEW.policy_version, NEW.claimed_by,
            NEW.kind, NEW.id, NEW.lapses_at, NEW.totals)
        IS DISTINCT FROM (OLD.number, OLD.at, OLD.units, OLD.xact, OLD.policy, OLD.policy_version,
            OLD.claimed_by, OLD.kind, OLD.id, OLD.lapses_at, OLD.totals)
        OR NEW.flags <> OLD.flags | 8
        OR NEW.metadata IS NOT NULL
        OR NEW.key IS NOT NULL AND NEW.key IS DISTINCT FROM OLD.key
        OR NOT EXISTS (SELECT FROM erased_leaves WHERE id = OLD.id)
        OR NOT EXISTS (
            SELECT FROM erasing_accounts
            WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
        )
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION let_entry_details_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.number, NEW.id, NEW.kind, NEW.of_grant, NEW.held_until, NEW.made_by, NEW.per, NEW.bundle)
        IS DISTINCT FROM (OLD.number, OLD.id, OLD.kind, OLD.of_grant, OLD.held_until, OLD.made_by, OLD.per,
            OLD.bundle)
        OR NEW.reason IS NOT NULL
        OR NOT EXISTS (SELECT FROM erased_leaves WHERE id = OLD.id)
        OR NOT EXISTS (
            SELECT FROM erasing_accounts
            WHERE OLD.account IN (account, replacement) AND NEW.account IN (OLD.account, replacement)
        )
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

-- An act may only lose filters that may name a subject, whose digest is in erased_leaves, in the transaction
-- that records an erasure.
CREATE FUNCTION let_acts_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := OLD.about;
    after jsonb := NEW.about;
    names text[] := ARRAY(SELECT jsonb_array_elements_text(after->'erased'));
BEGIN
    IF (NEW.revision, NEW.kind, NEW.changed_at, NEW.changed_by, NEW.reason, NEW.blind, NEW.xact)
        IS DISTINCT FROM (OLD.revision, OLD.kind, OLD.changed_at, OLD.changed_by, OLD.reason, OLD.blind,
            OLD.xact)
        OR NOT EXISTS (
            SELECT FROM erased_leaves WHERE id = lpad(to_hex(OLD.revision), 32, '0')::uuid
        )
        OR NOT records_erasure()
        OR EXISTS (
            SELECT FROM unnest(names) AS name WHERE name <> 'subject' AND name NOT LIKE 'metadata.%'
        )
        OR NOT COALESCE(before->'erased', '[]') <@ (after->'erased')
        OR after IS DISTINCT FROM jsonb_set(before, '{filters}', (before->'filters') - names)
            || jsonb_build_object('erased', after->'erased')
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN NEW;
END
$$;

-- Lists of changes end at the ledger's revision: a change above it would be in none.
CREATE FUNCTION let_changes_be_listed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.revision > (SELECT revision FROM ledger) THEN
        RAISE EXCEPTION 'a change takes the next revision of the ledger';
    END IF;
    RETURN NEW;
END
$$;

-- Marks follow each other, and are of transactions that have ended.
CREATE FUNCTION let_marks_go_on() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last record_marks;
    ended bigint;
BEGIN
    SELECT * INTO last FROM record_marks ORDER BY after DESC LIMIT 1;
    IF NEW.after <> COALESCE(last.position, 0) THEN
        RAISE EXCEPTION 'another follower was first' USING ERRCODE = 'unique_violation';
    END IF;
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint + xact_offset INTO ended FROM ledger;
    IF NEW.xact >= ended
        OR last.after IS NOT NULL
            AND (NEW.xact, NEW.id, NEW.revision) <= (last.xact, last.id, last.revision)
    THEN
        RAISE EXCEPTION 'a mark is of what has ended, and behind the last one';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION refuse_to_shrink_figures() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a figure only grows';
END
$$;

-- Looks at all figures that a statement wrote: there may be tens of thousands. The plan is made once in a session,
-- when both tables may be small, so it must not read a whole table for each figure.
CREATE FUNCTION let_figures_of_open_days_grow() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (
        SELECT FROM new_figures AS f WHERE NOT EXISTS (
            SELECT FROM open_days AS d WHERE d.policy = f.policy AND d.counted_on = f.counted_on
        )
    ) THEN
        RAISE EXCEPTION 'the figures of a closed day stay';
    END IF;
    RETURN NULL;
END
$$;

-- Figures go only where all are made again, and not where their entries may be dropped.
CREATE FUNCTION let_figures_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM day_figures_mark WHERE position <> 0 OR OLD.recorded_on <= kept_to
    ) THEN
        RAISE EXCEPTION 'figures stay until all are made again';
    END IF;
    RETURN OLD;
END
$$;

-- The mark of the figures follows the record. Only the owner of the tables sets it to 0.
CREATE FUNCTION let_figures_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.position < OLD.position AND (NEW.position <> 0
            OR NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE'))
        OR NEW.position
            > COALESCE((SELECT position FROM record_marks ORDER BY after DESC LIMIT 1), 0)
        OR OLD.kept_to > COALESCE(NEW.kept_to, '')
    THEN
        RAISE EXCEPTION 'the figures follow the record';
    END IF;
    RETURN NEW;
END
$$;

-- The figures that can be made again go with the mark. No quarter hour is kept as long as an entry that may be
-- dropped, so all quarter hours can be made again.
CREATE FUNCTION let_figures_be_made_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM day_figures WHERE NEW.kept_to IS NULL OR recorded_on > NEW.kept_to;
    DELETE FROM quarter_figures;
    RETURN NULL;
END
$$;

-- A day closes in the transaction that adds its act.
CREATE FUNCTION let_days_close() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM acts AS a JOIN policies AS p ON p.name = a.about::json ->> 'policy'
        WHERE a.xact = pg_current_xact_id()::text::bigint + (SELECT xact_offset FROM ledger)
            AND a.kind = 'day' AND p.id = OLD.policy AND a.about::json ->> 'date' = OLD.counted_on
    ) THEN
        RAISE EXCEPTION 'a day closes with the act that tells its figures';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION let_denials_be_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM open_days WHERE policy = NEW.policy AND counted_on = NEW.counted_on
    ) THEN
        RAISE EXCEPTION 'the denials of a closed day stay';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.denied < OLD.denied OR NEW.not_kept < OLD.not_kept
            OR (NEW.run, NEW.policy, NEW.counted_on)
                IS DISTINCT FROM (OLD.run, OLD.policy, OLD.counted_on)
        THEN
            RAISE EXCEPTION 'a count of denials only grows';
        END IF;
    END IF;
    RETURN NEW;
END
$$;

-- A first denial goes after 30 days, or in an erasure. The clock is that of the instances; the last of the 30
-- days is for what their clocks differ.
CREATE FUNCTION let_first_denials_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT COALESCE(OLD.denied_at < (SELECT max(seen_at) FROM instances) - interval '29 days', false)
        AND NOT EXISTS (SELECT FROM erasing_accounts WHERE account = OLD.account)
        AND NOT records_erasure()
    THEN
        RAISE EXCEPTION 'a first denial is kept for 30 days';
    END IF;
    RETURN OLD;
END
$$;

-- An account begins to be erased in the transaction that records it. Its name is its own.
CREATE FUNCTION let_accounts_be_erased() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_begun boolean := true;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        is_begun := NEW.revision <> OLD.revision;
    END IF;
    IF is_begun AND NOT EXISTS (
            SELECT FROM acts WHERE revision = NEW.revision AND kind = 'erasure'
                AND xact = pg_current_xact_id()::text::bigint + (SELECT xact_offset FROM ledger)
        )
        OR TG_OP = 'INSERT' AND EXISTS (SELECT FROM accounts WHERE id = NEW.replacement)
        OR is_begun AND NEW.subject IS DISTINCT FROM
            (SELECT a.subject FROM accounts AS a WHERE a.id = NEW.account)
        OR NOT is_begun AND NEW.subject IS NOT NULL AND NEW.subject IS DISTINCT FROM OLD.subject
    THEN
        RAISE EXCEPTION 'no act of this transaction erases this account';
    END IF;
    RETURN NEW;
END
$$;

-- The pseudonym that is kept is that of the account's `blind`.
CREATE FUNCTION let_pseudonyms_be_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM erasing_accounts AS x JOIN accounts AS a ON a.id = x.account
        WHERE x.replacement = NEW.account
            AND NEW.pseudonym = sha256('perdiem account'::bytea || uuid_send(a.blind))
    ) THEN
        RAISE EXCEPTION 'this account is not being erased';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION json_field(name text, value text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_json(name)::text || ':' || COALESCE(to_json(value)::text, 'null')
$$;

-- The digest of a leaf's private part, as private_digest() in src/domain/seal/leaf.rs makes it. `fields` are
-- those of its JSON object, in the order of their names.
CREATE FUNCTION leaf_digest(blind uuid, id uuid, VARIADIC fields text[]) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT sha256(
        sha256('perdiem salt'::bytea || uuid_send(blind) || uuid_send(id))
        || convert_to('{' || array_to_string(fields, ',') || '}', 'UTF8')
    )
$$;

-- A digest may be kept only if it is of what the ledger has now: of an account that is being erased, or of an
-- act while an erasure is recorded. Without this check a member of the service's role could erase a text and
-- keep the digest of another one.
CREATE FUNCTION let_leaves_be_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    digits text := replace(NEW.id::text, '-', '');
    is_of_change boolean := digits LIKE repeat('0', 16) || '%';
    change bigint := ('x' || substr(digits, 17))::bit(64)::bigint;
    digest bytea;
BEGIN
    IF NOT is_of_change THEN
        SELECT leaf_digest(a.blind, e.id,
            json_field('account', e.account::text),
            json_field('key', e.key::text),
            json_field('metadata', e.metadata),
            json_field('reason', d.reason),
            json_field('subject', COALESCE(a.subject,
                (SELECT x.subject FROM erasing_accounts AS x WHERE x.account = a.id AND x.step = 1)))
        ) INTO digest
        FROM entries AS e JOIN accounts AS a ON a.id = e.account
        LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
        WHERE e.id = NEW.id
            AND substring(uuid_send(e.id), 1, 6) = substring(uuid_send(NEW.id), 1, 6)
            AND EXISTS (SELECT FROM erasing_accounts AS x WHERE x.account = e.account);
    ELSE
        SELECT leaf_digest(o.blind, NEW.id,
            json_field('account', v.account::text),
            json_field('reason', v.reason),
            json_field('subject', o.subject)
        ) INTO digest
        FROM override_versions AS v JOIN overrides AS o ON o.account = v.account
        WHERE v.revision = change
            AND EXISTS (SELECT FROM erasing_accounts AS x WHERE x.account = v.account);
        IF digest IS NULL AND records_erasure() THEN
            SELECT leaf_digest(c.blind, NEW.id,
                json_field('about', c.about),
                json_field('reason', c.reason)
            ) INTO digest
            FROM acts AS c WHERE c.revision = change;
        END IF;
    END IF;
    IF digest IS DISTINCT FROM NEW.private THEN
        RAISE EXCEPTION 'no such leaf is being erased';
    END IF;
    RETURN NEW;
END
$$;

-- Only the owner of the tables cuts.
CREATE FUNCTION let_owners_cut() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RAISE EXCEPTION 'only the owner of the tables cuts' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

-- The place of an entry is noted as dropped where a sealed cut has it. The cut was recorded as many days after its
-- last position as it tells, and as many days after the entry as its policy keeps keys. `perdiem verify` also looks at
-- windows.
CREATE FUNCTION let_places_be_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM acts AS a
        JOIN record_marks AS m ON m.position = (a.about::json ->> 'last_position')::bigint
        JOIN record_marks AS s ON s.position = (
            SELECT position FROM record_marks
            WHERE (xact, id, revision)
                >= (a.xact, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid, a.revision)
            ORDER BY xact, id, revision LIMIT 1
        )
        WHERE a.revision = NEW.revision AND a.kind = 'cut'
            AND (NEW.xact, NEW.id) <= (m.xact, m.id)
            AND m.recorded_at <= s.recorded_at - make_interval(days => (a.about::json ->> 'age_days')::integer)
            AND NEW.policy = (SELECT policy FROM entries WHERE xact = NEW.xact AND id = NEW.id)
            AND (
                SELECT recorded_at FROM record_marks
                WHERE (xact, id, revision) >= (NEW.xact, NEW.id, 0) ORDER BY xact, id, revision LIMIT 1
            ) <= s.recorded_at - make_interval(days => COALESCE((
                SELECT (v.rule::json ->> 'idempotency_days')::integer FROM policy_versions AS v
                WHERE v.policy = NEW.policy AND v.revision < a.revision ORDER BY v.version DESC LIMIT 1
            ), 400))
            AND s.position <= (SELECT size FROM seals ORDER BY origin DESC, size DESC LIMIT 1)
    ) THEN
        RAISE EXCEPTION 'no sealed cut has this entry';
    END IF;
    RETURN NEW;
END
$$;

-- An entry may be deleted where its place is noted as dropped, and it is not its account's last one.
CREATE FUNCTION let_entries_be_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dropped_entries WHERE xact = OLD.xact AND id = OLD.id)
        OR (SELECT number FROM entries WHERE account = OLD.account ORDER BY number DESC LIMIT 1)
            <= OLD.number
    THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION let_entry_details_be_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dropped_entries WHERE id = OLD.id) THEN
        RAISE EXCEPTION 'entries are append-only';
    END IF;
    RETURN OLD;
END
$$;

-- For every function above, which are those that this transaction made: nobody's temporary table takes the
-- place of one that it reads, and only whom `perdiem migrate` names may call it.
DO $$
DECLARE
    called regprocedure;
BEGIN
    FOR called IN SELECT oid FROM pg_proc WHERE xmin = pg_current_xact_id()::xid
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
    END LOOP;
END
$$;


-- Triggers.

CREATE TRIGGER policy_versions_are_listed BEFORE INSERT ON policy_versions
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER override_versions_are_listed BEFORE INSERT ON override_versions
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER key_versions_are_listed BEFORE INSERT ON key_versions
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();

CREATE TRIGGER entry_kinds_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entry_kinds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

CREATE TRIGGER entries_are_append_only BEFORE TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entries_can_be_erased BEFORE UPDATE ON entries
    FOR EACH ROW EXECUTE FUNCTION let_entries_be_erased();
CREATE TRIGGER entries_can_be_dropped BEFORE DELETE ON entries
    FOR EACH ROW EXECUTE FUNCTION let_entries_be_dropped();

CREATE TRIGGER entry_details_are_append_only BEFORE TRUNCATE ON entry_details
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER entry_details_can_be_erased BEFORE UPDATE ON entry_details
    FOR EACH ROW EXECUTE FUNCTION let_entry_details_be_erased();
CREATE TRIGGER entry_details_can_be_dropped BEFORE DELETE ON entry_details
    FOR EACH ROW EXECUTE FUNCTION let_entry_details_be_dropped();

CREATE TRIGGER record_marks_go_on BEFORE INSERT ON record_marks
    FOR EACH ROW EXECUTE FUNCTION let_marks_go_on();
CREATE TRIGGER record_marks_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON record_marks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

CREATE TRIGGER day_figures_only_grow BEFORE UPDATE ON day_figures FOR EACH ROW
    WHEN (
        NEW.value < OLD.value
        OR (NEW.policy, NEW.counted_on, NEW.recorded_on, NEW.figure)
            IS DISTINCT FROM (OLD.policy, OLD.counted_on, OLD.recorded_on, OLD.figure)
    )
    EXECUTE FUNCTION refuse_to_shrink_figures();
CREATE TRIGGER day_figures_begin_on_open_days AFTER INSERT ON day_figures
    REFERENCING NEW TABLE AS new_figures
    FOR EACH STATEMENT EXECUTE FUNCTION let_figures_of_open_days_grow();
CREATE TRIGGER day_figures_grow_on_open_days AFTER UPDATE ON day_figures
    REFERENCING NEW TABLE AS new_figures
    FOR EACH STATEMENT EXECUTE FUNCTION let_figures_of_open_days_grow();
CREATE TRIGGER day_figures_are_kept BEFORE DELETE ON day_figures
    FOR EACH ROW EXECUTE FUNCTION let_figures_go();
CREATE TRIGGER day_figures_mark_follows BEFORE UPDATE ON day_figures_mark
    FOR EACH ROW EXECUTE FUNCTION let_figures_follow();
CREATE TRIGGER day_figures_are_made_again AFTER UPDATE ON day_figures_mark
    FOR EACH ROW WHEN (NEW.position = 0) EXECUTE FUNCTION let_figures_be_made_again();
CREATE TRIGGER open_days_close BEFORE DELETE ON open_days
    FOR EACH ROW EXECUTE FUNCTION let_days_close();
CREATE TRIGGER denied_claims_grow BEFORE INSERT OR UPDATE ON denied_claims
    FOR EACH ROW EXECUTE FUNCTION let_denials_be_counted();
CREATE TRIGGER denied_claims_stay BEFORE DELETE OR TRUNCATE ON denied_claims
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER first_denials_stay BEFORE UPDATE OR TRUNCATE ON first_denials
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER first_denials_go BEFORE DELETE ON first_denials
    FOR EACH ROW EXECUTE FUNCTION let_first_denials_go();

CREATE TRIGGER acts_are_listed BEFORE INSERT ON acts
    FOR EACH ROW EXECUTE FUNCTION let_changes_be_listed();
CREATE TRIGGER acts_cut_by_owners BEFORE INSERT ON acts
    FOR EACH ROW WHEN (NEW.kind = 'cut') EXECUTE FUNCTION let_owners_cut();
CREATE TRIGGER acts_can_be_erased BEFORE UPDATE ON acts
    FOR EACH ROW EXECUTE FUNCTION let_acts_be_erased();
CREATE TRIGGER acts_are_append_only BEFORE DELETE OR TRUNCATE ON acts
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

CREATE TRIGGER seal_origins_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON seal_origins
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER seal_hashes_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON seal_hashes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
CREATE TRIGGER seals_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON seals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();

CREATE TRIGGER erasing_accounts_are_recorded BEFORE INSERT OR UPDATE ON erasing_accounts
    FOR EACH ROW EXECUTE FUNCTION let_accounts_be_erased();
CREATE TRIGGER erased_leaves_are_kept BEFORE INSERT OR UPDATE ON erased_leaves
    FOR EACH ROW EXECUTE FUNCTION let_leaves_be_kept();
CREATE TRIGGER erased_accounts_are_kept BEFORE INSERT OR UPDATE ON erased_accounts
    FOR EACH ROW EXECUTE FUNCTION let_pseudonyms_be_kept();

CREATE TRIGGER dropped_entries_are_of_a_cut BEFORE INSERT ON dropped_entries
    FOR EACH ROW EXECUTE FUNCTION let_places_be_dropped();
CREATE TRIGGER dropped_entries_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON dropped_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_entries();
