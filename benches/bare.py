"""The bare limits: what Redis and PostgreSQL do without a service before them."""

import json
import pathlib
import statistics
import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from accounting import Meter, children_cpu_seconds
from processes import Trouble, as_user, run
from programs import ROOT
from servers import Postgres, Redis

CALIBRATION_CALLS = 20_000
POOL = 20
SAMPLED = 0.1
CSV_COLUMNS = ("rps", "average", "least", "p50", "p95", "p99", "most")
LUA = ROOT / "src" / "counter" / "lua"
GRANT = json.dumps({"policy": 1, "version": 1, "subject": "granted-64-1-0-000000001"})
DAY_STARTS_AT = 1_763_654_400


def claim_script(redis):
    """Loads the script that decides a claim in Redis. Returns a call of it that grants, with
    `__rand_int__` where a claim differs from others."""
    text = "".join((LUA / name).read_text() for name in ("line.lua", "count.lua"))
    sha = redis.query("SCRIPT", "LOAD", text)
    counter = "perdiem:{bare:00}:__rand_int__"
    keys = [counter, f"{counter}:waiting", "perdiem:{bare:00}:queue"]
    # Its ledger says that the account has no entries: so a counter need not be there.
    claim = ["i__rand_int__", "k__rand_int__", "1", "1", "0", GRANT]
    # The present instant, no observing, and no roll-back.
    claim += [f"{DAY_STARTS_AT}000000", "", "0"]
    window = f"day:{DAY_STARTS_AT}"
    limit = [f"u{window}", "3", f";d%d+,(%d+),{DAY_STARTS_AT}%+86400;", "0"]
    call = ["EVALSHA", sha, "3", *keys, *claim, window, *limit]
    answer = redis.query(*(word.replace("__rand_int__", "0") for word in call))
    redis.query("FLUSHALL")
    if not answer.startswith("granted"):
        raise Trouble(f"the claim script answered {answer}")
    return call


def insert_statement(postgres, database, ordered, random):
    """An INSERT of a row like the one entry that the database's ledger holds, into a table like
    its own. `ordered` and `random` are texts of digits that the statement is given: ids go up,
    and accounts and keys come from all over."""
    columns = [
        line.split("|")
        for line in postgres.query(
            database,
            "SELECT column_name, udt_name FROM information_schema.columns"
            " WHERE table_name = 'entries' ORDER BY ordinal_position",
        ).splitlines()
    ]
    values = ", ".join(f"quote_nullable({name})" for name, _ in columns)
    row = json.loads(postgres.query(database, f"SELECT json_build_array({values}) FROM entries"))
    texts = []
    for (name, kind), value in zip(columns, row):
        digits = f"lpad({ordered}, 32, '0')" if name == "id" else f"rpad({random}, 32, '0')"
        if value == "NULL" or kind not in ("uuid", "bytea"):
            texts.append(value)
        elif kind == "uuid":
            texts.append(f"CAST({digits} AS uuid)")
        else:
            texts.append(f"decode({digits}, 'hex')")
    names = ", ".join(name for name, _ in columns)
    return f"INSERT INTO bare ({names}) VALUES ({', '.join(texts)})"


def metered(processes, send):
    """Sends. Returns what that returns, and the CPU seconds by process and of all others."""
    meter = Meter(processes)
    before = children_cpu_seconds()
    sent = send()
    generator = children_cpu_seconds() - before
    # PostgreSQL's backends have ended once the cluster has noticed.
    time.sleep(0.3)
    return sent, *meter.read(generator)


def numbers(rate, times_ms, claims, cpu, others, seconds):
    """A round's result, as contestants over HTTP give it."""
    p50, p99, p999 = times_ms
    return {
        "claims": claims,
        "claims_per_second": rate,
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
        "cpu_us_per_claim": {name: used * 1e6 / claims for name, used in cpu.items()},
        "other_cpus_busy": others / seconds,
    }


@dataclass
class BareScript:
    """The claim script, called by redis-benchmark."""

    name: str
    title: str
    connections: tuple
    redis: Redis
    kind: str = "bare"

    def warm_up(self, connections, _seconds, _label):
        self.call = claim_script(self.redis)
        self.rate, _ = self.send(connections, CALIBRATION_CALLS)

    def measure(self, connections, seconds, _label):
        calls = int(self.rate * seconds)
        processes = {"Redis": self.redis.pid}
        sent, cpu, others = metered(processes, lambda: self.send(connections, calls))
        rate, times_ms = sent
        self.redis.query("FLUSHALL")
        return numbers(rate, times_ms, calls, cpu, others, calls / rate)

    def send(self, connections, calls):
        command = ["redis-benchmark", "-p", self.redis.port, "-c", connections, "-n", calls]
        command += ["-r", 10**11, "--csv", *self.call]
        output = run(as_user() + list(map(str, command)))
        # The first column is the command, whose quotes and commas nobody escaped.
        columns = output.splitlines()[-1].rsplit(",", len(CSV_COLUMNS))[1:]
        row = {name: float(text.strip('"')) for name, text in zip(CSV_COLUMNS, columns)}
        return row["rps"], (row["p50"], row["p99"], None)


@dataclass
class BareInserts:
    """One committed INSERT a claim, by pgbench with a pool of connections."""

    name: str
    title: str
    connections: tuple
    postgres: Postgres
    database: str
    kind: str = "bare"

    def warm_up(self, connections, seconds, _label):
        self.send(connections, seconds)

    def measure(self, connections, seconds, _label):
        processes = {"PostgreSQL": self.postgres.pid}
        sent, cpu, others = metered(processes, lambda: self.send(connections, seconds))
        rate, claims, times_ms = sent
        return numbers(rate, times_ms, claims, cpu, others, seconds)

    def send(self, connections, seconds):
        insert = insert_statement(self.postgres, self.database, ":id", ":random")
        with TemporaryDirectory() as place:
            script = pathlib.Path(place, "insert.sql")
            script.write_text(
                "\\set n :n + 1\n\\set id :n * 100 + :client_id\n"
                f"\\set random random(1, 9000000000000000000)\n{insert};\n"
            )
            command = [f"{self.postgres.programs}/pgbench", "-n", "-M", "prepared"]
            command += ["-c", connections, "-j", 1, "-T", max(1, round(seconds)), "-f", script]
            command += ["-D", f"n={time.time_ns() // 100}", "-l", f"--sampling-rate={SAMPLED}"]
            output = run(
                [*map(str, command), self.postgres.url(self.database)], cwd=place
            )
            logs = pathlib.Path(place).glob("pgbench_log.*")
            times = [int(line.split()[2]) for log in logs for line in log.read_text().splitlines()]
        claims = number_after(output, "actually processed: ")
        rate = number_after(output, "tps = ")
        cuts = statistics.quantiles(times, n=1000)
        return rate, int(claims), tuple(cuts[place - 1] / 1000 for place in (500, 990, 999))


def number_after(text, words):
    return float(text.split(words, 1)[1].split()[0].split("/")[0])


@dataclass
class BareLone:
    """One call of the claim script and then one committed INSERT, one after the other."""

    name: str
    title: str
    connections: tuple
    program: str
    postgres: Postgres
    database: str
    redis: Redis
    kind: str = "bare"

    def warm_up(self, _connections, seconds, _label):
        self.call = claim_script(self.redis)
        self.insert = insert_statement(self.postgres, self.database, "$1", "$2")
        self.send(seconds)

    def measure(self, _connections, seconds, _label):
        processes = {"PostgreSQL": self.postgres.pid, "Redis": self.redis.pid}
        report, cpu, others = metered(processes, lambda: self.send(seconds))
        times_ms = tuple(report[key] / 1000 for key in ("p50_us", "p99_us", "p999_us"))
        rate = report["times"] / seconds
        return numbers(rate, times_ms, report["times"], cpu, others, seconds)

    def send(self, seconds):
        self.redis.query("FLUSHALL")
        command = [self.program, "--postgres", self.postgres.url(self.database)]
        command += ["--redis", f"127.0.0.1:{self.redis.port}", "--insert", self.insert]
        command += ["--first", str(time.time_ns()), "--seconds", str(seconds), *self.call]
        return json.loads(run(as_user() + command))
