"""Fills a ledger with entries of the past, in bulk. Every row is what perdiem would have written: `perdiem verify` and
a reconciliation find nothing wrong."""

import contextlib
import json
import os
import time

from identity import Identity
from lab import Server

DAYS = 100
ENTRIES_A_DAY = 3
# A subject has its policy by its number: one of a thousand has the rare one.
POLICIES = ("benefit", "coupon", "gift", "rare")
RARE_EVERY = 1000
DAY = [{"max": 3, "per": "day"}]
# What the days of one of fifty subjects are, by the number of the subject: a grant, its reversal, and a grant; two
# grants and an adjustment; a hold, its confirmation, and a grant; or grants with metadata. All others are 3 grants.
HABITS = 50
REVERSING, ADJUSTING, CONFIRMING, NOTING = 7, 13, 21, 33
HELD = "interval '12 hours'"
# Entries of one transaction. A mark of the record ends where a transaction ends.
ENTRIES_A_TRANSACTION = 24
# Overrides of one policy.
OVERRIDES_EACH = 10


def a_quarter_of_memory():
    """A quarter of this machine's memory, written as a setting of PostgreSQL."""
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 4 >> 20}MB"


def members(entries):
    """How many subjects have that many entries."""
    return -(-entries // (DAYS * ENTRIES_A_DAY))


def member(number):
    """The policy and the name of a subject."""
    rare = number % RARE_EVERY == 5
    return POLICIES[-1 if rare else number % (len(POLICIES) - 1)], f"member-{number}"


def fill(binary, ledger, entries, policies=0, overrides=0):
    """Fills a new ledger on PostgreSQL with so many entries, and then with policies and overrides. Afterwards its
    indexes are in memory, as they are on a server that has run for some time. No instance may run meanwhile. Returns
    the transaction of the first entry."""
    query = ledger.query
    with contextlib.ExitStack() as stack:
        make_examples(Server.perdiem(stack, binary, ledger))
    identity = Identity(ledger)
    numbers = dict(row.split("|") for row in query("SELECT name, id FROM policies").splitlines())
    rebuild = drop_indexes(query)
    # 1. The subjects, with what an entry has of its subject.
    query("CREATE UNLOGGED TABLE filled (member bigint, account uuid, policy integer, subject text)")
    ledger.copy("filled", ["member", "account", "policy", "subject"], (
        (number, identity.account(policy, subject), numbers[policy], subject)
        for number in range(members(entries))
        for policy, subject in [member(number)]
    ))
    query("ANALYZE filled")
    query(
        "INSERT INTO accounts (id, policy, subject, blind)"
        " SELECT account, policy, subject, gen_random_uuid() FROM filled ORDER BY member"
    )
    # 2. The entries. Their transactions are later than all that this server has had. So perdiem goes on behind them, as
    #    after a restore into another cluster (src/ledger/cluster.rs).
    first_xact = int(query("SELECT pg_current_xact_id()")) + 1
    source = entries_in_order(entries)
    query(insert(query, "entries", entry(first_xact), "entries", source))
    some = f"{source} WHERE {of_kind('<> 1')} OR {IS_HOLD}"
    query(insert(query, "entry_details", DETAILS, "entry_details", some))
    # 3. Policies and overrides.
    query("DROP TABLE filled")
    add_changes(ledger, identity, first_xact + entries // ENTRIES_A_TRANSACTION + 1, policies, overrides)
    query("SET maintenance_work_mem = '1GB'; " + rebuild)
    query("VACUUM ANALYZE")
    query("CREATE EXTENSION pg_prewarm")
    query(
        "SELECT pg_prewarm(indexrelid) FROM pg_index"
        " WHERE indrelid IN ('entries'::regclass, 'accounts'::regclass)"
    )
    query("CHECKPOINT")
    return first_xact


def make_examples(server):
    """Makes a row of each kind. The rows in bulk have from it what is the same in all."""

    def send(path, body, method="POST"):
        return json.loads(server.open(method, path, body)[1])

    for policy in POLICIES:
        send(f"/v1/policies/{policy}", {"time_zone": "UTC", "limits": DAY}, "PUT")
    override = {"limits": [{"max": 9, "per": "day"}]}
    send("/v1/policies/benefit/overrides/example", override, "PUT")
    claim = {"policy": "benefit", "subject": "example"}
    grant, hold = send("/v1/claims", {"claims": [
        claim | {"idempotency_key": "example"}, claim | {"hold_seconds": 600},
    ]})["items"]
    send(f"/v1/grants/{grant['grant']['id']}/reversal", {"reason": "a test"})
    send(f"/v1/grants/{hold['grant']['id']}/confirmation", {})
    send("/v1/policies/benefit/subjects/example/adjustments", {"units": 1, "reason": "a test"})


# SQL about the entry `i`, which counts from 0 in the order of time. `nth` is its place in its day, and `take` the place
# among the three entries that its account has on that day.

HABIT = f"member % {HABITS}"
IS_HOLD = f"{HABIT} = {CONFIRMING} AND take = 0"
KIND = f"""CASE WHEN {HABIT} = {REVERSING} AND take = 1 THEN 3 WHEN {HABIT} = {CONFIRMING} AND take = 1 THEN 2
    WHEN {HABIT} = {ADJUSTING} AND take = 2 THEN 5 ELSE 1 END"""
USED = f"""CASE {HABIT} WHEN {REVERSING} THEN (take + 1) % 2 WHEN {CONFIRMING} THEN (take + 2) / 2
    ELSE take + 1 END"""
NUMBER = f"day * {ENTRIES_A_DAY} + take + 1"
AT = "to_timestamp(micros / 1e6::double precision)"


def of_kind(which):
    return f"({KIND}) {which}"


def entries_in_order(entries):
    """All entries in the order of time, each with its day, its place there, its microsecond, and its account."""
    count = members(entries)
    a_day = count * ENTRIES_A_DAY
    return f"""
        generate_series(0::bigint, {entries - 1}) AS i
        CROSS JOIN LATERAL (SELECT i / {a_day} AS day, i % {a_day} AS nth, i % {a_day} / {count} AS take) AS d
        CROSS JOIN LATERAL (SELECT {micros("day", "nth", a_day)} AS micros, CASE take WHEN 1 THEN
            {entry_id(micros("day", f"nth - {count}", a_day), f"{NUMBER} - 1", f"i - {count}")} END AS id_before) AS t
        JOIN filled ON member = i % {count}"""


def micros(day, nth, a_day):
    """The microsecond of an entry since 1970. The last day is over."""
    begin = int(time.time()) // 86_400 - DAYS - 2
    return f"({begin} + {day}) * 86400000000 + ({nth}) * 86000000000 / {a_day}"


def entry_id(micros, number, i):
    """The id of an entry, as `EntryId::new` makes it."""
    high = f"({micros}) / 1000 * 65536 + 28672 + ({micros}) % 1000 * 4096 / 1000"
    low = f"(1::bigint << 63) | (({number}) << 42) | (hashint8extended({i}, 0) & {(1 << 42) - 1})"
    return f"(lpad(to_hex({high}), 16, '0') || to_hex({low}))::uuid"


def entry(first_xact):
    return {
        "number": NUMBER,
        "at": AT,
        "units": "1",
        "xact": f"{first_xact} + i / {ENTRIES_A_TRANSACTION}",
        "policy": "policy",
        "kind": KIND,
        "account": "account",
        "id": entry_id("micros", NUMBER, "i"),
        "key": f"CASE WHEN {of_kind('= 1')} THEN md5(i::text)::uuid END",
        "lapses_at": f"CASE WHEN {IS_HOLD} THEN {AT} + {HELD} END",
        "totals": f"format('d3,%s,%s+86400', {USED}, micros / 86400000000 * 86400)",
        "metadata": f"""CASE WHEN {HABIT} = {NOTING} THEN format('{{"order":"A-%s"}}', member / {HABITS} % 1000) END""",
    }


def example_of_kind(column):
    """What the example of the entry's kind has in a column of its details."""
    return f"(SELECT d.{column} FROM entry_details AS d WHERE d.kind = {KIND} LIMIT 1)"


DETAILS = {
    "account": "account",
    "number": NUMBER,
    "id": entry_id("micros", NUMBER, "i"),
    "kind": KIND,
    "of_grant": f"CASE WHEN {of_kind('IN (2, 3)')} THEN id_before END",
    "held_until": f"CASE WHEN {IS_HOLD} THEN {AT} + {HELD} END",
    "made_by": example_of_kind("made_by"),
    "reason": example_of_kind("reason"),
    "per": "NULL",
    "bundle": "NULL::uuid",
}


def add_changes(ledger, identity, xact, policies, overrides):
    """Adds policies, and overrides of them, each in a transaction and a revision of its own."""
    query = ledger.query
    names = [f"policy-{number:06d}" for number in range(policies)]
    revision = int(query(f"UPDATE ledger SET revision = revision + {policies + overrides} RETURNING revision"))
    first = revision - policies - overrides + 1
    own = {"revision": f"{first} + nth", "xact": f"{xact} + nth", "version": "1"}
    query("CREATE UNLOGGED TABLE filled (nth bigint, name text, account uuid, subject text)")
    columns = ["nth", "name", "account", "subject"]
    # 1. The policies are those of the example.
    ledger.copy("filled", columns, ((nth, name, None, None) for nth, name in enumerate(names)))
    query("INSERT INTO policies (name) SELECT name FROM filled ORDER BY nth")
    query(insert(query, "policy_versions", own | {"policy": "p.id"}, "policy_versions",
        "filled JOIN policies AS p USING (name)"))
    query("TRUNCATE filled")
    # 2. The overrides are of subjects without entries.
    ledger.copy("filled", columns, (
        (policies + nth, policy, identity.account(policy, f"guest-{nth}"), f"guest-{nth}")
        for nth in range(overrides)
        for policy in [names[nth // OVERRIDES_EACH % policies]]
    ))
    query(
        "INSERT INTO overrides (account, policy, subject, blind) SELECT account, p.id, subject, gen_random_uuid()"
        " FROM filled JOIN policies AS p USING (name)"
    )
    query(insert(query, "override_versions", own | {"account": "account"}, "override_versions", "filled"))
    query("DROP TABLE filled")


def drop_indexes(query):
    """Drops the indexes of `entries`. Returns the SQL that builds them again."""
    key = query("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'entries_pkey'")
    others = query(
        "SELECT pg_get_indexdef(indexrelid) FROM pg_index"
        " WHERE indrelid = 'entries'::regclass AND NOT indisprimary"
    )
    query("ALTER TABLE entries DROP CONSTRAINT entries_pkey")
    names = query("SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'entries'::regclass")
    query("DROP INDEX " + ", ".join(names.splitlines()))
    return "; ".join([f"ALTER TABLE entries ADD CONSTRAINT entries_pkey {key}", *others.splitlines()])


def insert(query, table, expressions, example, source):
    """Returns a statement that fills a table. The expressions give the values of their columns. All other
    columns get their values from the first row of an example."""
    columns = query(
        "SELECT column_name FROM information_schema.columns"
        f" WHERE table_name = '{table}' AND is_generated = 'NEVER' ORDER BY ordinal_position"
    ).splitlines()
    values = [expressions.get(name, f"(SELECT e.{name} FROM {example} AS e LIMIT 1)") for name in columns]
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {source}"


def backdate(ledger, first_xact):
    """Dates the positions as if an instance had given them soon after each entry: a list of a day begins where the
    record was on that day. The figures are made again, because they have the days of the positions. Nothing may be
    sealed yet."""
    query = ledger.query
    query("ALTER TABLE record_marks DISABLE TRIGGER USER")
    # Marks of the policies and overrides that were added last stay as they are.
    query(
        "UPDATE record_marks AS m SET recorded_at = e.at + interval '1 second'"
        " FROM record_marks AS o CROSS JOIN LATERAL (SELECT max(at) AS at FROM entries WHERE xact = o.xact) AS e"
        f" WHERE o.after = m.after AND o.xact >= {first_xact} AND e.at IS NOT NULL"
    )
    query(
        "UPDATE record_marks SET recorded_at = (SELECT min(recorded_at) FROM record_marks)"
        f" WHERE xact < {first_xact}"
    )
    query("ALTER TABLE record_marks ENABLE TRIGGER USER")
    query("VACUUM ANALYZE record_marks")
    query("UPDATE day_figures_mark SET position = 0")
