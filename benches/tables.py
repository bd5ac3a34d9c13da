"""Results as tables of Markdown."""

PROCESSES = ["perdiem", "peer", "Redis", "PostgreSQL", "load generator", "together"]


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(value, digits):
    """Median, least and most."""
    if value is None:
        return ""
    median, least, most = (f"{value[key]:,.{digits}f}" for key in ("median", "min", "max"))
    return median if least == most else f"{median} ({least}–{most})"


def rates(results):
    """Throughput and latency of each contestant."""
    return table(
        ["", "connections", "claims/s", "p50 ms", "p99 ms", "p99.9 ms"],
        [
            [
                result["title"],
                str(result["connections"]),
                spread(result["claims_per_second"], 0),
                spread(result["p50_ms"], 2),
                spread(result["p99_ms"], 2),
                spread(result.get("p999_ms"), 2),
            ]
            for result in results.values()
        ],
    )


def costs(results):
    """CPU time a claim, by process, and bytes a grant."""
    rows = []
    for result in results.values():
        cpu = {name: f"{value['median']:.1f}" for name, value in result["cpu_us_per_claim"].items()}
        bytes_a_grant = [result.get(f"{what}_bytes_per_grant") for what in ("wal", "ledger")]
        rows.append(
            [
                result["title"],
                str(result["connections"]),
                *(cpu.get(process, "") for process in PROCESSES),
                *(f"{value['median']:,.0f}" if value else "" for value in bytes_a_grant),
            ]
        )
    return table(
        ["CPU µs a claim", "connections", *PROCESSES, "WAL bytes a grant", "ledger bytes a grant"],
        rows,
    )


def growth(grown):
    """CPU time a claim, and memory, of ledgers and policies of different size."""
    rows = []
    for result in grown.values():
        cpu = result["cpu_us_per_claim"]
        memory = result.get("resident_mib")
        bytes_a_row = result.get("filled_bytes_per_row")
        rows.append(
            [
                result["title"],
                *(f"{cpu[process]['median']:.1f}" for process in PROCESSES if process in cpu),
                f"{memory:,.0f}" if memory else "",
                f"{bytes_a_row:,.0f}" if bytes_a_row else "",
            ]
        )
    processes = [process for process in PROCESSES if process != "peer"]
    header = ["CPU µs a claim", *processes, "perdiem's memory, MiB", "ledger bytes a row"]
    return table(header, rows)


def goals(judged):
    """What was to be reached, and what was."""
    rows = []
    for one in judged:
        bound = one["bound"]
        is_bytes = bound is not None and bound > 100
        wanted = "" if bound is None else f"{'at most' if one['is_most'] else 'at least'} {bound:g}"
        beyond = "" if one["beyond"] is None else f"{one['beyond']:g}"
        met = {None: "", True: "yes", False: "**no**"}[one["is_met"]]
        of = f"`{one['of']}`"
        rows.append([one["what"], of, wanted, beyond, spread(one, 0 if is_bytes else 2), met])
    return table(["", "of", "wanted", "beyond", "measured", "reached"], rows)
