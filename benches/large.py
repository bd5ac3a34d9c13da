"""Fills a ledger with ten million rows, in bulk. The rows look like perdiem's."""

import os

DAYS = 100
GRANTS_A_DAY = 3
# The columns of an entry as SQL. The SQL uses i, the entry's place in time; day; member; and take, the
# number of the grant in the day. All other columns have the values of an entry that perdiem wrote.
ENTRY = {
    "number": f"day * {GRANTS_A_DAY} + take + 1",
    "at": "at",
    "account": "md5('account' || member)::uuid",
    "id": "(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'"
    " || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid",
    "key": "md5('key' || i)::uuid",
    "totals": "format('d3,%s,%s+86400', take + 1, extract(epoch FROM begin)::bigint)",
}
ACCOUNT = {"id": ENTRY["account"], "subject": "'member-' || member"}


def a_quarter_of_memory():
    """A quarter of this machine's memory, written as a setting of PostgreSQL."""
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 4 >> 20}MB"


def fill(server, rows):
    """Fills a ledger that has one policy, `benefit`. Afterwards its indexes are in memory, as they are
    on a server that has run for some time."""
    query = server.ledger.query
    claim = {"policy": "benefit", "subject": "member", "idempotency_key": "example"}
    server.open("POST", "/v1/claims", {"claims": [claim]})
    members = -(-rows // (DAYS * GRANTS_A_DAY))
    a_day = members * GRANTS_A_DAY
    series = f"""
        generate_series(0, {rows - 1}) AS i
        CROSS JOIN LATERAL (SELECT i % {members} AS member, i / {a_day} AS day,
            i % {a_day} / {members} AS take) AS m
        CROSS JOIN LATERAL (SELECT
            date_trunc('day', now()) - make_interval(days => {DAYS} + 2 - day) AS begin) AS b
        CROSS JOIN LATERAL (SELECT
            begin + i % {a_day} * make_interval(secs => 86000.0 / {a_day}) AS at) AS t"""
    rebuild = drop_indexes(query)
    query(insert(query, "entries", ENTRY, "entries", series))
    numbers = f"generate_series(0, {members - 1}) AS member"
    query(insert(query, "accounts", ACCOUNT, "accounts", numbers))
    query("SET maintenance_work_mem = '1GB'; " + rebuild)
    query("VACUUM ANALYZE entries, accounts")
    query("CREATE EXTENSION pg_prewarm")
    query(
        "SELECT pg_prewarm(indexrelid) FROM pg_index"
        " WHERE indrelid IN ('entries'::regclass, 'accounts'::regclass)"
    )
    query("CHECKPOINT")
    # Checks that perdiem can read these rows: the oldest day has no other rows.
    day = query("SELECT to_char(min(at) AT TIME ZONE 'UTC', 'YYYY-MM-DD') FROM entries")
    server.open("GET", f"/v1/grants?from={day}T00:00:00Z&to={day}T23:59:59Z&limit=1000")


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
    columns get their values from the one row of an example."""
    columns = query(
        "SELECT column_name FROM information_schema.columns"
        f" WHERE table_name = '{table}' ORDER BY ordinal_position"
    ).splitlines()
    values = [expressions.get(name, f"(SELECT {name} FROM {example} LIMIT 1)") for name in columns]
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {source}"
