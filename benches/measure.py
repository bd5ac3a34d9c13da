"""Rounds: the contestants take turns, and what each round tells is put together."""

import statistics
import sys

# Perdiem's, a peer's, or a limit without any service.
KINDS = ("perdiem", "peer", "bare")
COLUMNS = (
    "claims_per_second",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "wal_bytes_per_grant",
    "ledger_bytes_per_grant",
    "drain_seconds",
    "waiting_at_end",
    "bursts_fallen_back",
)


def measure_all(contestants, rounds, seconds, warm_up_seconds):
    """Lets all contestants take their turns. Every second round goes the other way round, so
    that nobody always comes after the same one."""
    results = {}
    for contestant, connections in contestants:
        key = f"{contestant.name}@{connections}"
        results[key] = {
            "name": contestant.name,
            "title": contestant.title,
            "kind": contestant.kind,
            "connections": connections,
            "rounds": [],
        }
    for number in range(1, rounds + 1):
        for contestant, connections in contestants[:: 1 if number % 2 else -1]:
            label = f"{contestant.name}-{connections}-{number}"
            contestant.warm_up(connections, warm_up_seconds, label)
            result = contestant.measure(connections, seconds, label)
            results[f"{contestant.name}@{connections}"]["rounds"].append(result)
            tell(number, f"{contestant.name}@{connections}", result)
    for result in results.values():
        result |= summarise(result["rounds"])
    # In the order of the document: whose it is, and then as they took their turns.
    return dict(sorted(results.items(), key=lambda item: KINDS.index(item[1]["kind"])))


def tell(number, key, result):
    cpu = ", ".join(f"{name} {used:.1f}" for name, used in result["cpu_us_per_claim"].items())
    print(
        f"round {number}: {key}: "
        f"{result['claims_per_second']:,.0f}/s, p50 {result['p50_ms']:.2f} ms, "
        f"p99 {result['p99_ms']:.2f} ms; CPU µs: {cpu}; others {result['other_cpus_busy']:.2f}",
        file=sys.stderr,
        flush=True,
    )


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(rounds):
    """The median of each column, and its spread; of those columns that the rounds have."""
    result = {
        column: summary([one[column] for one in rounds])
        for column in COLUMNS
        if rounds[0].get(column) is not None
    }
    result["cpu_us_per_claim"] = {
        name: summary([one["cpu_us_per_claim"][name] for one in rounds])
        for name in rounds[0]["cpu_us_per_claim"]
    }
    totals = [sum(one["cpu_us_per_claim"].values()) for one in rounds]
    result["cpu_us_per_claim"]["together"] = summary(totals)
    return result
