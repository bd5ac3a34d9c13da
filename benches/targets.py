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
    bound: float
    is_most: bool = False


RATE, P50, P99 = "claims_per_second", "p50_ms", "p99_ms"
TARGETS = [
    Target("durable grants, against Limitador on Redis", RATE, "granted@64", "limitador-redis@64", 1.1),
    Target("the same", RATE, "granted@256", "limitador-redis@256", 1.4),
    Target("p99 of the same", P99, "granted@64", "limitador-redis@64", 1.0, True),
    Target("the same", P99, "granted@256", "limitador-redis@256", 1.0, True),
    Target("denied claims, against Limitador on Redis", RATE, "denied@64", "limitador-redis@64", 2.0),
    Target("`durability: counted`, against Limitador on Redis", RATE, "counted@64", "limitador-redis@64", 1.3),
    Target("durable grants, against one INSERT a claim through a pool of 20", RATE, "granted@64", "bare-inserts@20", 3.5),
    Target("a lone client's p50, against one Redis call and one INSERT, bare", P50, "granted@1", "bare-lone@1", 1.3, True),
    Target("embedded (SQLite) durable grants, against Limitador on Redis", RATE, "sqlite@64", "limitador-redis@64", 1.0),
    Target("a policy of three limits, against one of one limit", RATE, "three-limits@64", "granted@64", 0.85),
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
                [ours[target.value] / theirs[target.value] for ours, theirs in pairs],
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


def verdict(what, of, values, bound, is_most):
    median = statistics.median(values)
    return {
        "what": what,
        "of": of,
        "median": median,
        "min": min(values),
        "max": max(values),
        "bound": bound,
        "is_most": is_most,
        "is_met": median <= bound if is_most else median >= bound,
    }
