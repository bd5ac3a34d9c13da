"""What was to be reached: ratios of two contestants in the same rounds."""

import statistics
from dataclasses import dataclass


@dataclass
class Target:
    """The ratio of `value` between two contestants, and its bound."""

    what: str
    value: str
    ours: str
    theirs: str
    # None where nothing was wanted.
    bound: float | None
    is_most: bool = False


RATE, P50, P99, SERVERS_CPU = "claims_per_second", "p50_ms", "p99_ms", "servers_cpu_us"
LIMITADOR = "limitador-redis@64"
GRANTS = "durable grants, against Limitador on Redis"
TUNED = f"{GRANTS}, a connection a worker"


def at_least(bound, what, value, ours, theirs=LIMITADOR):
    return Target(what, value, ours, theirs, bound)


def at_most(bound, what, value, ours, theirs=LIMITADOR):
    return Target(what, value, ours, theirs, bound, is_most=True)


TARGETS = [
    at_least(1.1, GRANTS, RATE, "granted@64"),
    at_least(1.4, GRANTS, RATE, "granted@256", "limitador-redis@256"),
    at_least(None, TUNED, RATE, "granted@64", "limitador-redis-each@64"),
    at_least(None, TUNED, RATE, "granted@256", "limitador-redis-each@256"),
    at_most(None, f"the servers' CPU a claim, {GRANTS}", SERVERS_CPU, "granted@64"),
    at_most(1.0, f"p99 of {GRANTS}", P99, "granted@64"),
    at_most(1.0, f"p99 of {GRANTS}", P99, "granted@256", "limitador-redis@256"),
    at_least(2.0, "denied claims, against Limitador on Redis", RATE, "denied@64"),
    at_least(
        None,
        "denied claims, against Limitador's denied ones",
        RATE,
        "denied@64",
        "limitador-denied@64",
    ),
    at_least(1.3, "counted claims, against Limitador on Redis", RATE, "counted@64"),
    at_least(
        3.5,
        "durable grants, against one INSERT a claim through a pool of 20",
        RATE,
        "granted@64",
        "bare-inserts@20",
    ),
    at_most(
        1.3,
        "a lone client's p50, against one call to Redis and one INSERT",
        P50,
        "granted@1",
        "bare-lone@1",
    ),
    at_least(1.0, "SQLite's durable grants, against Limitador on Redis", RATE, "sqlite@64"),
    at_most(
        1.1,
        "the servers' CPU a claim at ten million rows, against none",
        SERVERS_CPU,
        "rows@64",
        "empty@64",
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
    ),
    at_least(
        0.85,
        "a policy of three limits, against one of one limit",
        RATE,
        "three-limits@64",
        "granted@64",
    ),
]
LEDGER_BYTES_MOST = 350


def judge(results):
    """Each target that the results can tell of: the ratio of every round, their median, and
    whether it is met."""
    judged = []
    for target in TARGETS:
        if target.ours not in results or target.theirs not in results:
            continue
        pairs = zip(results[target.ours]["rounds"], results[target.theirs]["rounds"])
        judged.append(
            verdict(
                target.what,
                f"{target.ours} : {target.theirs}",
                [value(ours, target) / value(theirs, target) for ours, theirs in pairs],
                target.bound,
                target.is_most,
            )
        )
    granted = results.get("granted@64")
    if granted:
        sizes = [one["ledger_bytes_per_grant"] for one in granted["rounds"]]
        what = "ledger bytes a grant, tables and indexes, 3 grants a subject and day"
        judged.append(verdict(what, "granted@64", sizes, LEDGER_BYTES_MOST, True))
    return judged


def compare(results, ending):
    """The ratios of each contestant and its like of another perdiem, without a bound."""
    judged = []
    for key, ours in results.items():
        theirs = results.get(key.replace("@", f"{ending}@"))
        if not theirs:
            continue
        for what in (RATE, P50, P99, SERVERS_CPU):
            target = Target(f"{ours['title']}: {what}", what, key, theirs["name"], None)
            pairs = zip(ours["rounds"], theirs["rounds"])
            ratios = [value(one, target) / value(other, target) for one, other in pairs]
            judged.append(verdict(target.what, f"{key} : {theirs['name']}", ratios, None, False))
    return judged


def value(one, target):
    """What a round tells of a target."""
    if target.value == SERVERS_CPU:
        cpu = one["cpu_us_per_claim"]
        return sum(used for name, used in cpu.items() if name != "load generator")
    return one[target.value]


def verdict(what, of, values, bound, is_most):
    median = statistics.median(values)
    is_met = None if bound is None else median <= bound if is_most else median >= bound
    return {
        "what": what,
        "of": of,
        "median": median,
        "min": min(values),
        "max": max(values),
        "bound": bound,
        "is_most": is_most,
        "is_met": is_met,
    }
