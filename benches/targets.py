"""What is to be reached: ratios of two contestants in the same rounds."""

import statistics
from dataclasses import dataclass


@dataclass
class Target:
    """The ratio of `value` between two contestants, or of one its value, and the bound."""

    what: str
    value: str
    ours: str
    theirs: str | None
    # None where nothing is wanted.
    bound: float | None
    # What is worth trying for.
    beyond: float | None = None
    is_most: bool = False


RATE, P50, P99 = "claims_per_second", "p50_ms", "p99_ms"
SERVERS_CPU, SERVER_CPU = "servers_cpu_us", "server_cpu_us"
LEDGER_BYTES, FALLEN_BACK = "ledger_bytes_per_grant", "bursts_fallen_back"
LIMITADOR = "limitador-redis@64"
GRANTS = "durable grants, against Limitador on Redis"
TUNED = f"{GRANTS}, a connection a worker"


def at_least(bound, what, value, ours, theirs=LIMITADOR, beyond=None):
    return Target(what, value, ours, theirs, bound, beyond)


def at_most(bound, what, value, ours, theirs=LIMITADOR, beyond=None):
    return Target(what, value, ours, theirs, bound, beyond, is_most=True)


TARGETS = [
    at_least(1.2, GRANTS, RATE, "granted@64", beyond=1.4),
    at_least(1.5, GRANTS, RATE, "granted@256", "limitador-redis@256", beyond=1.8),
    at_least(None, TUNED, RATE, "granted@64", "limitador-redis-each@64"),
    at_least(None, TUNED, RATE, "granted@256", "limitador-redis-each@256"),
    at_most(None, f"the servers' CPU a claim, {GRANTS}", SERVERS_CPU, "granted@64"),
    at_most(1.0, f"p99 of {GRANTS}", P99, "granted@64", beyond=0.7),
    at_most(1.0, f"p99 of {GRANTS}", P99, "granted@256", "limitador-redis@256", beyond=0.7),
    at_least(
        1.0,
        "durable grants of returning subjects, against Limitador on Redis",
        RATE,
        "returning@64",
        beyond=1.2,
    ),
    at_least(
        None,
        "durable grants of two instances in turns, against one instance",
        RATE,
        "in-turns@64",
        "granted@64",
    ),
    at_most(
        None,
        "bursts that fell back, of the batches of two instances in turns",
        FALLEN_BACK,
        "in-turns@64",
        None,
    ),
    at_least(1.8, "denied claims, against Limitador on Redis", RATE, "denied@64", beyond=2.5),
    at_least(
        None,
        "denied claims, against Limitador's denied ones",
        RATE,
        "denied@64",
        "limitador-denied@64",
    ),
    at_least(
        1.2,
        "counted claims, with the queue kept empty, against Limitador on Redis",
        RATE,
        "counted@64",
        beyond=1.5,
    ),
    at_least(
        0.9,
        "SQLite's durable grants, against Limitador on Redis",
        RATE,
        "sqlite@64",
        beyond=1.2,
    ),
    at_least(
        1.3,
        "durable grants of PostgreSQL alone, against Limitador on Redis",
        RATE,
        "postgresql@64",
        beyond=1.5,
    ),
    at_least(
        2.0,
        "claims in batches of 100, against single grants",
        RATE,
        "batches@8",
        "granted@64",
        beyond=3.0,
    ),
    at_least(
        3.5,
        "durable grants, against one INSERT a claim through a pool of 20",
        RATE,
        "granted@64",
        "bare-inserts@20",
    ),
    at_most(
        1.2,
        "a lone client's p50, against one call to Redis and one INSERT",
        P50,
        "granted@1",
        "bare-lone@1",
        beyond=1.0,
    ),
    at_most(
        1.1,
        "the servers' CPU a claim at ten million rows, against none",
        SERVERS_CPU,
        "rows@64",
        "empty@64",
        beyond=1.02,
    ),
    at_most(
        None,
        "the same, no full pages in the log",
        SERVERS_CPU,
        "rows-not-whole@64",
        "empty@64",
    ),
    at_most(
        1.1,
        "the servers' CPU a claim with ten thousand policies, against one",
        SERVERS_CPU,
        "policies@64",
        "empty@64",
        beyond=1.02,
    ),
    at_least(
        0.85,
        "a policy of three limits, against one of one limit",
        RATE,
        "three-limits@64",
        "granted@64",
    ),
    at_most(
        1.6,
        "perdiem's own CPU a grant, against a route that does nothing",
        SERVER_CPU,
        "granted@64",
        "nothing@64",
        beyond=1.4,
    ),
    at_most(
        320,
        "ledger bytes a grant, tables and indexes, 3 grants a subject and day",
        LEDGER_BYTES,
        "granted@64",
        None,
        beyond=250,
    ),
]


def judge(results):
    """Each target that the results can tell of: the value of every round, their median, and
    whether it is met."""
    judged = []
    for target in TARGETS:
        ours, theirs = results.get(target.ours), results.get(target.theirs)
        if ours and (theirs or not target.theirs):
            judged.append(verdict(target, ours, theirs))
    return judged


def compare(results, ending):
    """The ratios of each contestant and its like of another perdiem, without a bound."""
    judged = []
    for key, ours in results.items():
        like = key.replace("@", f"{ending}@")
        if like in results:
            for what in (RATE, P50, P99, SERVERS_CPU):
                target = Target(f"{ours['title']}: {what}", what, key, like, None)
                judged.append(verdict(target, ours, results[like]))
    return judged


def value(one, target):
    """What a round tells of a target."""
    cpu = one["cpu_us_per_claim"]
    if target.value == SERVERS_CPU:
        return sum(used for name, used in cpu.items() if name != "load generator")
    if target.value == SERVER_CPU:
        return cpu["perdiem"] if "perdiem" in cpu else cpu["peer"]
    return one[target.value]


def verdict(target, ours, theirs):
    values = [value(one, target) for one in ours["rounds"]]
    if theirs:
        values = [mine / value(one, target) for mine, one in zip(values, theirs["rounds"])]
    median, bound = statistics.median(values), target.bound
    is_met = None
    if bound is not None:
        is_met = median <= bound if target.is_most else median >= bound
    return {
        "what": target.what,
        "of": f"{target.ours} : {target.theirs}" if target.theirs else target.ours,
        "median": median,
        "min": min(values),
        "max": max(values),
        "bound": bound,
        "beyond": target.beyond,
        "is_most": target.is_most,
        "is_met": is_met,
    }
