"""Flat growth: the same claims on a ledger of ten million rows, and with ten thousand policies,
as on a ledger that begins empty."""

import contextlib
import re
import sys

import measure
from accounting import resident_mib
from claims import Claims
from contestants import ONE_LIMIT
from machine import memory_mib
from processes import Trouble
from servers import start_perdiem, start_postgres, start_redis

ROWS = 10_000_000
POLICIES = 10_000
DAYS = 100
GRANTS_A_DAY = 3
CONNECTIONS = 64
# About what a B-tree of random keys comes to by itself.
FILL_FACTOR = 70

# An entry's columns, by name and type, as SQL of: i, its place in time; day, member, and take,
# which of the day's grants it is. What is not here is copied from an entry that perdiem wrote.
ENTRY_COLUMNS = {
    ("number", "int8"): f"day * {GRANTS_A_DAY} + take + 1",
    ("number", "int4"): f"day * {GRANTS_A_DAY} + take + 1",
    ("at", "timestamptz"): "at",
    ("account", "uuid"): "md5('account' || member)::uuid",
    ("id", "uuid"): "(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'"
    " || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid",
    ("key", "uuid"): "md5('key' || i)::uuid",
    ("totals", "text"): "format('d3,%s,%s+86400', take + 1, extract(epoch FROM begin)::bigint)",
}
ACCOUNT_COLUMNS = {
    ("id", "uuid"): "md5('account' || member)::uuid",
    ("subject", "text"): "'member-' || member",
}


class WithoutFullPages(Claims):
    """PostgreSQL logs no full pages meanwhile, to tell what these cost. A power cut could then
    lose data: nothing to do elsewhere."""

    def measure(self, *arguments, **more):
        log_full_pages(self.server.ledger.query, "off")
        try:
            return super().measure(*arguments, **more)
        finally:
            log_full_pages(self.server.ledger.query, "on")


def log_full_pages(query, switch):
    query(f"ALTER SYSTEM SET full_page_writes = {switch}")
    query("SELECT pg_reload_conf()")


def measure_growth(programs, threads, rounds, seconds, warm_up_seconds, rows, policies):
    """All of it, on servers of its own. Returns results by contestant, as other rounds give
    them, with what else was seen."""
    with contextlib.ExitStack() as stack:
        # A quarter of the memory, as PostgreSQL's manual advises; the default is 128 MiB.
        memory = f"{memory_mib() // 4}MB"
        postgres = start_postgres(stack, programs, shared_buffers=memory)
        redis = start_redis(stack)

        def server(database):
            started = start_perdiem(stack, programs.perdiem, postgres, database, redis)
            started.put_policy("benefit", ONE_LIMIT)
            return started

        def claims(name, title, server, kind=Claims, **more):
            return kind(
                name, title, (CONNECTIONS,), server, programs.load, threads=threads, **more
            )

        empty, large, many = server("empty"), server("large"), server("many")
        tell(f"filling a ledger with {rows:,} rows")
        filled_bytes = fill(large, rows)
        tell(f"making {policies:,} policies")
        for number in range(policies):
            many.put_policy(f"policy-{number:06d}", ONE_LIMIT)
        contestants = [
            claims("empty", "a ledger that begins empty, one policy", empty),
            claims("rows", f"{rows:,} rows", large),
            claims(
                "rows-not-whole",
                f"{rows:,} rows, no full pages in the log",
                large,
                kind=WithoutFullPages,
            ),
            claims(
                "policies",
                f"{policies:,} policies",
                many,
                policy="policy-000000",
                policies=policies,
            ),
        ]
        turns = [(one, CONNECTIONS) for one in contestants]
        results = measure.measure_all(turns, rounds, seconds, warm_up_seconds)
        for one in contestants:
            memory = resident_mib(one.server.processes["perdiem"])
            results[f"{one.name}@{CONNECTIONS}"]["resident_mib"] = memory
        results[f"rows@{CONNECTIONS}"]["filled_bytes_per_row"] = filled_bytes / rows
    return results


def tell(words):
    print(words, file=sys.stderr, flush=True)


def fill(server, rows):
    """Fills a ledger in bulk with rows as perdiem writes them. Returns its bytes."""
    query = server.ledger.query
    query("CREATE EXTENSION pg_prewarm")
    claim = {"policy": "benefit", "subject": "member", "idempotency_key": "example"}
    server.request("POST", "/v1/claims", {"claims": [claim]})
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
    query(insert(query, "entries", ENTRY_COLUMNS, series))
    accounts = f"generate_series(0, {members - 1}) AS member"
    query(insert(query, "accounts", ACCOUNT_COLUMNS, accounts))
    query("SET maintenance_work_mem = '1GB'; " + "; ".join(rebuild))
    for table in ("entries", "accounts"):
        query(f"VACUUM ANALYZE {table}")
    warm(query)
    query("CHECKPOINT")
    # Perdiem must be able to read them: the oldest day has nothing else.
    day = query("SELECT to_char(min(at) AT TIME ZONE 'UTC', 'YYYY-MM-DD') FROM entries")
    server.request("GET", f"/v1/grants?from={day}T00:00:00Z&to={day}T23:59:59Z&limit=1000")
    return server.ledger.size_bytes()


def warm(query):
    """Reads the indexes into PostgreSQL's memory, as claims do in the course of time. They must
    fit, so that the ledger's size is measured and not the disk."""
    indexes = int(query("SELECT pg_indexes_size('entries') + pg_indexes_size('accounts')"))
    memory = query("SELECT pg_size_bytes(current_setting('shared_buffers'))")
    if indexes > int(memory):
        raise Trouble(f"{indexes >> 20} MiB of indexes do not fit into PostgreSQL's memory")
    query(
        "SELECT pg_prewarm(indexrelid) FROM pg_index"
        " WHERE indrelid IN ('entries'::regclass, 'accounts'::regclass)"
    )


def insert(query, table, expressions, source):
    """Fills a table: its columns by the expressions, and by an example that stands there."""
    columns = query(
        "SELECT column_name, udt_name FROM information_schema.columns"
        f" WHERE table_name = '{table}' ORDER BY ordinal_position"
    )
    names, values = [], []
    for line in columns.splitlines():
        name, kind = line.split("|")
        names.append(name)
        example = f"(SELECT {name} FROM {table} LIMIT 1)"
        values.append(expressions.get((name, kind), example))
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {source}"


def drop_indexes(query):
    """Takes the indexes of `entries` away. Returns what builds them again."""
    rebuild = []
    found = query(
        "SELECT i.indexrelid::regclass, c.conname, pg_get_constraintdef(c.oid),"
        " pg_get_indexdef(i.indexrelid) FROM pg_index AS i"
        " LEFT JOIN pg_constraint AS c ON c.conindid = i.indexrelid"
        " WHERE i.indrelid = 'entries'::regclass"
    )
    for line in found.splitlines():
        index, constraint, constraint_text, index_text = line.split("|")
        if constraint:
            query(f"ALTER TABLE entries DROP CONSTRAINT {constraint}")
            text = with_fill_factor(constraint_text)
            rebuild.append(f"ALTER TABLE entries ADD CONSTRAINT {constraint} {text}")
        else:
            query(f"DROP INDEX {index}")
            rebuild.append(with_fill_factor(index_text))
    return rebuild


def with_fill_factor(text):
    """Indexes of accounts and keys come to be filled as random ones are."""
    if not re.search(r"\((account|key)\b", text):
        return text
    return re.sub(r"( WHERE .*)?$", rf" WITH (fillfactor = {FILL_FACTOR})\1", text, count=1)
