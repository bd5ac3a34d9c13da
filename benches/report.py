"""The document, its numbers as JSON, and its picture."""

import datetime
import json
import textwrap

import picture
import tables
from bare import POOL
from claims import BLOCK, EXHAUSTED_SUBJECTS, LIMIT
from contestants import BATCH, BATCH_CONNECTIONS
from growth import DAYS
from instances import APPENDS, FALLEN_BACK, RETURNING_SUBJECTS, RETURNS_MOST
from programs import ROOT

# Written by hand: what stands in the way of what was not reached, with its own heading.
FINDINGS = ROOT / "benches" / "findings.md"
DOCUMENT = ROOT / "docs" / "benchmarks.md"


def write(facts, results, grown, judged, arguments):
    """Writes all three."""
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(facts, results, grown, judged, arguments))
    settings = ("seconds", "warm_up_seconds", "rounds", "load_threads", "rows", "policies")
    data = {
        "machine": facts,
        "settings": {key: getattr(arguments, key) for key in settings},
        "targets": judged,
        "results": results,
        "growth": grown,
    }
    DOCUMENT.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    cores = f"{facts['cores']} cores for all: service, Redis, PostgreSQL, load generator"
    caption = f"Median of {arguments.rounds} rounds; connections after the dot; {cores}"
    DOCUMENT.with_suffix(".svg").write_text(picture.draw(results, caption))


def wrapped(paragraph):
    return textwrap.fill(" ".join(paragraph.split()), 96, break_on_hyphens=False)


def others_most(results):
    """The largest load of all else in any round, in cores."""
    return max(one["other_cpus_busy"] for row in results.values() for one in row["rounds"])


def findings():
    """What people found out about these numbers, where they wrote it down."""
    return f"\n{FINDINGS.read_text()}" if FINDINGS.exists() else ""


def queue_words(results):
    """How far the ledger was behind Redis when counted claims ended."""
    counted = next(row for row in results.values() if "drain_seconds" in row)
    return wrapped(
        f"""When the load of counted claims ended, {tables.spread(counted["waiting_at_end"], 0)}
        grants waited for the ledger, and {tables.spread(counted["drain_seconds"], 2)} s later none
        did; that time is part of the rate."""
    )


def document(facts, results, grown, judged, arguments):
    others = f"{others_most(results | grown):.2f}"
    command = f"scripts/bench --seconds {arguments.seconds:g} --rounds {arguments.rounds}"
    origin = f"""Made by `{command}` on {datetime.date.today()}; the numbers of every round are in
[benchmarks.json](benchmarks.json). Medians of {arguments.rounds} rounds (least–most)."""
    machine = f"""{facts["cores"]} cores ({facts["cpu"]}), {facts["memory_gib"]} GiB of memory,
{facts["kernel"]}; data on {facts["filesystem"]}, where one page takes {facts["sync_us"]} µs to the
disk (fdatasync, median). PostgreSQL {facts["postgresql"]}, Redis {facts["redis"]}, limitador
{facts["limitador"]}, rate-limiter-flexible {facts["rate_limiter_flexible"]} on node
{facts["node"]}, rustc {facts["rustc"]}, perdiem {facts["perdiem"]}. All of them ran on this one
machine, the load generator too. Whatever else ran on it took at most {others} cores in any
round."""
    return f"""# Benchmarks

{wrapped(origin)}

![Throughput and latency of every contestant](benchmarks.svg)

{tables.rates(results)}

## What was to be reached

Each ratio is taken within a round; the median of the rounds counts. The names are contestants of
`scripts/bench` and their connections. "Wanted" is the bar, and "beyond" is worth trying for.

{tables.goals(judged)}
{findings()}
## What it costs

User and system time from the operating system, divided by the answered claims; PostgreSQL with all
its backends, also those that have ended. SQLite's is perdiem's own. WAL is what the cluster logged,
with its full pages after checkpoints; the ledger is what its tables `entries` and `accounts` grew
by, with their indexes.

{tables.costs(results)}

{queue_words(results)}

## Flat growth

{arguments.rows:,} rows of {DAYS} days, filled in bulk as perdiem writes them (a random index as
full as one comes to by itself); beside a ledger that begins empty, and one with
{arguments.policies:,} policies, whose claims go round all of them. All three on Redis and
PostgreSQL, granted. PostgreSQL has a quarter of the memory for its pages (`shared_buffers`), as its
manual advises, and the indexes of the large ledger are read into it first.

{tables.rates(grown)}

{tables.growth(grown)}

## The machine

{wrapped(machine)}

## What was measured

- The load generator is `benches/peers/src/load.rs`, on {arguments.load_threads} thread(s). Each
  connection sends its next claim when it has the answer to the last one, so a latency is the time
  of one claim among all that are under way; a lone client's is that on 1 connection.
- Each claim is a `POST` with a bearer key, an `Idempotency-Key` of its own, and a subject in a
  JSON body; perdiem and its peers get the same bytes. The policy is "{LIMIT} per day"; three
  limits are a day's, a week's and a month's.
- Granted: fresh subjects, each of which takes all {LIMIT}. The load goes through {BLOCK:,} subjects
  {LIMIT} times, and then on to the next, so a subject's claims lie {BLOCK:,} claims apart. Every
  grant is committed to the ledger before it is answered.
- Denied: {EXHAUSTED_SUBJECTS:,} subjects that have taken all {LIMIT}. The ledger confirms a counter
  every few seconds; that is part of the numbers.
- Counted (`durability: counted`): Redis decides, and the ledger takes the grants afterwards. A
  round lasts until the queue is empty, and its claims are divided by all of that time: a queue
  that grew is paid for.
- Granted, denied and batches share a ledger, which has one policy. Three limits and counted share
  another, which has several, on the same servers.
- Returning subjects: {RETURNING_SUBJECTS:,} subjects have claimed once. Before each round perdiem
  is started again, so it remembers nothing of them, and the warm-up claims of other subjects. In
  the round each subject claims once more, with a new key; the round ends at the last subject. Their
  policy is "{RETURNS_MOST:,} per day".
- Two instances in turns: two processes of perdiem have one ledger and one Redis. The claims are
  those of "granted", but a subject's first and third claim go to one instance, and its second one
  to the other. Perdiem's CPU is that of both. A burst that fell back counts in
  `{FALLEN_BACK}`. The batches are `{APPENDS}` less
  these: a batch whose burst fell back is appended a second time.
- Batches: {BATCH} claims in a request, {BATCH_CONNECTIONS} connections; claims are counted, and a
  latency is a batch's.
- The contestants take turns, for {arguments.rounds} rounds of {arguments.seconds:g} s each, every
  second one the other way round, each after {arguments.warm_up_seconds:g} s or more to warm up.
- A round counts only if every answer was 201 (granted) or every one 429 (denied), and if the
  ledger grew by just as many grants as were answered 201. Otherwise the script fails.
- PostgreSQL has its default settings, so `fsync` and `synchronous_commit` are on. SQLite runs in
  WAL with `synchronous = FULL`. Redis keeps nothing on disk and evicts nothing. perdiem is built
  with `cargo build --profile dist`, and has its default settings.

## Whom it is compared with

- **Limitador** is the crate behind a minimal server of ours (`benches/peers/src/limitador.rs`):
  actix-web with as many workers as cores, as perdiem's, profile `dist`. It looks at the same key,
  reads the same body, and answers with less. On Redis it takes its storage that asks Redis for
  every check (`AsyncRedisStorage`, not the cached one): one call to look and one to count. All
  workers share its connection, as in Limitador's own server; with a connection a worker, which that
  server does not offer, it takes less, so that is shown too. It records nothing, remembers no
  `Idempotency-Key`, may go over a limit when checks race (its own source says so), and counts a day
  from a subject's first claim on.
- **rate-limiter-flexible** runs behind node's own HTTP server, in one process as node does. It
  records nothing, and remembers no key.
- **A route that does nothing** (`benches/peers/src/nothing.rs`) reads the same claims, and answers
  each with the bytes of one of perdiem's answers: actix-web with as many workers as cores, profile
  `dist`. Perdiem's own CPU is compared with that, and not with its `/livez`: that takes no body and
  no key, answers with less, and has perdiem's own routing in it.
- **The bare limits** have no service before them. `redis-benchmark` calls the script by which
  perdiem decides a claim in Redis alone (`counter/lua/count.lua`); `pgbench` commits single rows
  into a table with the columns and indexes of perdiem's `entries`, by prepared statements on
  {POOL} connections. The lone one is a loop (`benches/peers/src/lone.rs`): that call, and then
  that insert.
"""
