"""Who takes part. Servers are started when the first contestant that needs them is made."""

import contextlib
from functools import cached_property

from bare import POOL, BareInserts, BareLone, BareScript
from claims import LIMIT, Claims
from instances import RETURNS_MOST, InTurns, Returning
from servers import (
    start_flexible,
    start_instance,
    start_limitador,
    start_nothing,
    start_perdiem,
    start_postgres,
    start_redis,
)

# What the names of another perdiem's contestants end in.
AGAINST = "-against"
BATCH = 100
BATCH_CONNECTIONS = 8
ONE_LIMIT = [{"max": LIMIT, "per": "day"}]
THREE_LIMITS = [*ONE_LIMIT, {"max": 15, "per": "week"}, {"max": 50, "per": "month"}]


class Ground:
    """The servers that contestants share: those of perdiem, and those of its peers."""

    def __init__(self, stack, programs, threads):
        self.stack = stack
        self.programs = programs
        self.threads = threads

    @cached_property
    def postgres(self):
        return start_postgres(self.stack, self.programs)

    @cached_property
    def redis(self):
        return start_redis(self.stack)

    @cached_property
    def peers_redis(self):
        return start_redis(self.stack)

    @cached_property
    def bare_redis(self):
        """Flushed after each round: nobody's counters are there."""
        return start_redis(self.stack)

    @cached_property
    def both(self):
        """perdiem on Redis and PostgreSQL."""
        return self.perdiem(self.postgres, "fast", self.redis)

    @cached_property
    def several(self):
        """The same with several policies: the index by policy grows in several places."""
        server = self.perdiem(self.postgres, "several", self.redis)
        server.put_policy("three", THREE_LIMITS)
        server.put_policy("counted", ONE_LIMIT, durability="counted")
        return server

    @cached_property
    def plain(self):
        return self.perdiem(self.postgres, "plain")

    @cached_property
    def embedded(self):
        return self.perdiem()

    @cached_property
    def limitador(self):
        return start_limitador(self.stack, self.programs, self.peers_redis)

    @cached_property
    def limitador_each(self):
        options = ["--connection-a-worker"]
        return start_limitador(self.stack, self.programs, self.peers_redis, options)

    @cached_property
    def limitador_in_memory(self):
        return start_limitador(self.stack, self.programs)

    @cached_property
    def flexible(self):
        return start_flexible(self.stack, self.peers_redis)

    @cached_property
    def nothing(self):
        return start_nothing(self.stack, self.programs, self.both)

    @cached_property
    def bare(self):
        """A database with a table as perdiem's entries, and with one of these as an example."""
        with contextlib.ExitStack() as stack:
            server = start_perdiem(stack, self.programs.perdiem, self.postgres, "bare")
            server.put_policy("benefit", ONE_LIMIT)
            claim = {"policy": "benefit", "subject": "any", "idempotency_key": "any"}
            server.request("POST", "/v1/claims", {"claims": [claim]})
        self.postgres.query("bare", "CREATE TABLE bare (LIKE entries INCLUDING ALL)")
        return "bare"

    def perdiem(self, postgres=None, database=None, redis=None):
        binary = self.programs.perdiem
        server = start_perdiem(self.stack, binary, postgres, database, redis)
        server.put_policy("benefit", ONE_LIMIT)
        return server


def claims(name, title, connections, server_name, **more):
    def make(ground):
        return Claims(
            name,
            title,
            connections,
            server=getattr(ground, server_name),
            load=ground.programs.load,
            threads=ground.threads,
            **more,
        )

    return name, connections, make


def returning(ground):
    life = ground.stack.enter_context(contextlib.ExitStack())
    binary = ground.programs.perdiem
    server = start_perdiem(life, binary, ground.postgres, "returns", ground.redis)
    server.put_policy("benefit", [{"max": RETURNS_MOST, "per": "day"}])
    return Returning(
        "returning",
        f"{BOTH}: returning subjects",
        (64,),
        server=server,
        load=ground.programs.load,
        threads=ground.threads,
        binary=binary,
        life=life,
    )


def in_turns(ground):
    server = ground.perdiem(ground.postgres, "turns", ground.redis)
    partner = start_instance(
        ground.stack, ground.programs.perdiem, server.ledger, server.secret, server.redis
    )
    return InTurns(
        "in-turns",
        f"{BOTH}: two instances in turns",
        (64,),
        server=server,
        load=ground.programs.load,
        threads=ground.threads,
        partner=partner,
    )


def bare_script(ground):
    return BareScript("bare-script", "Redis: the claim script", (64,), ground.bare_redis)


def bare_inserts(ground):
    title = f"PostgreSQL: an INSERT a claim, pool of {POOL}"
    return BareInserts("bare-inserts", title, (POOL,), ground.postgres, ground.bare)


def bare_lone(ground):
    title = "one call to Redis, then one INSERT"
    program = ground.programs.lone
    postgres, redis = ground.postgres, ground.bare_redis
    return BareLone("bare-lone", title, (1,), program, postgres, ground.bare, redis)


BOTH = "perdiem, Redis and PostgreSQL"
# By name: on how many connections, and how each is made. Those that are compared stand together.
CONTESTANTS = [
    claims("limitador-redis", "Limitador on Redis", (64, 256), "limitador"),
    claims(
        "limitador-redis-each",
        "Limitador on Redis, a connection a worker",
        (64, 256),
        "limitador_each",
    ),
    claims("granted", f"{BOTH}: granted", (64, 256, 1), "both"),
    claims("nothing", "a route that does nothing, with these bytes", (64,), "nothing"),
    ("bare-lone", (1,), bare_lone),
    ("returning", (64,), returning),
    ("in-turns", (64,), in_turns),
    claims("three-limits", f"{BOTH}: three limits", (64,), "several", policy="three"),
    claims("counted", f"{BOTH}: counted", (64,), "several", policy="counted", is_counted=True),
    claims("denied", f"{BOTH}: denied", (64,), "both", status=429),
    claims("limitador-denied", "Limitador on Redis: denied", (64,), "limitador", status=429),
    claims(
        "batches", f"{BOTH}: batches of {BATCH}", (BATCH_CONNECTIONS,), "both", batch=BATCH
    ),
    ("bare-inserts", (POOL,), bare_inserts),
    claims("postgresql", "perdiem, PostgreSQL alone: granted", (64,), "plain"),
    claims("sqlite", "perdiem, SQLite: granted", (64,), "embedded"),
    claims("limitador-memory", "Limitador in memory", (64, 256), "limitador_in_memory"),
    claims("flexible", "rate-limiter-flexible on Redis, node", (64,), "flexible"),
    ("bare-script", (64,), bare_script),
]
NAMES = [name for name, _, _ in CONTESTANTS]


def make_contestants(grounds, names, connections):
    """Those that are named, in the order of the list, on the connections that are named. A
    second ground has another perdiem, whose contestants stand beside those of the first."""
    made = []
    for name, own, make in CONTESTANTS:
        wanted = [number for number in own if not connections or number in connections]
        if name not in names or not wanted:
            continue
        pair = [make(grounds[0])]
        if len(grounds) > 1 and isinstance(pair[0], Claims) and pair[0].server.ledger:
            pair.append(make(grounds[1]))
            pair[1].name += AGAINST
            pair[1].title += ", --against"
        made += [(contestant, number) for number in wanted for contestant in pair]
    return made
