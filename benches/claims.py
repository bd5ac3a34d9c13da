"""Contestants that are sent claims over HTTP."""

import json
import time
from dataclasses import dataclass

from accounting import Meter, children_cpu_seconds
from processes import Trouble, as_user, run
from servers import Server

LIMIT = 3
# Fresh subjects are claimed for in blocks, so that a subject's three claims lie a block apart.
BLOCK = 1000
EXHAUSTED_SUBJECTS = 2000
EXHAUSTION_SECONDS = 60
WARM_UPS_MOST = 20
DRAIN_DEADLINE_SECONDS = 60
DRAIN_LOOK_SECONDS = 0.02

# What waits for the ledger in all buckets' queues.
WAITING_LUA = """
local waiting = 0
for bucket = 0, 255 do
  waiting = waiting + redis.call('XLEN', string.format('perdiem:{%s:%02x}:queue', ARGV[1], bucket))
end
return waiting
"""


@dataclass
class Claims:
    """A server, and what is claimed of it."""

    name: str
    title: str
    connections: tuple
    server: Server
    load: str
    policy: str = "benefit"
    status: int = 201
    batch: int = 0
    is_counted: bool = False
    threads: int = 1
    # Goes round so many, whose names end in digits.
    policies: int = 1
    is_exhausted: bool = False

    @property
    def kind(self):
        return "perdiem" if self.server.ledger else "peer"

    @property
    def addresses(self):
        return [self.server.address]

    @property
    def is_denied(self):
        return self.status == 429

    def send(self, connections, seconds, label, **more):
        """Sends claims for so long. Returns what the load generator says, and its CPU seconds."""
        path = "/v1/claims" if self.batch else f"/v1/policies/{self.policy}/claims"
        threads = min(self.threads, connections)
        if self.is_denied:
            subjects, count, times = "exhausted", EXHAUSTED_SUBJECTS // threads, 0
        else:
            subjects, count, times = label, BLOCK // threads, LIMIT
        options = {
            "path": path,
            "secret": self.server.secret,
            "connections": connections,
            "threads": threads,
            "seconds": seconds,
            "keys": label,
            "subjects": subjects,
            "count": count,
            "times": times,
            "batch": self.batch,
            "policy": self.policy,
            "policies": self.policies,
        } | more
        command = [self.load, *self.addresses]
        command += [f"--{name}={value}" for name, value in options.items()]
        before = children_cpu_seconds()
        output = run(as_user() + command)
        return json.loads(output), children_cpu_seconds() - before

    def warm_up(self, connections, seconds, label):
        """Fills caches; and exhausts the subjects that are to be denied."""
        if self.is_denied and not self.is_exhausted:
            claims = EXHAUSTED_SUBJECTS * LIMIT // min(self.threads, connections)
            self.send(connections, EXHAUSTION_SECONDS, f"{label}-x", requests=claims)
            self.is_exhausted = True
        wanted = {str(self.status)}
        for attempt in range(WARM_UPS_MOST):
            report, _ = self.send(connections, seconds, f"{label}-w{attempt}")
            if set(report["statuses"]) == wanted:
                break
        else:
            raise Trouble(f"{self.title}: the warm-up was answered {report['statuses']}")
        if self.is_counted:
            self.drain()

    def measure(self, connections, seconds, label, **more):
        """One round. Returns its numbers; raises Trouble when it was not what is meant."""
        ledger = self.server.ledger
        if ledger:
            count, size, wal = ledger.count(), ledger.size_bytes(), ledger.wal_bytes()
        meter = Meter(self.server.processes)
        report, generator = self.send(connections, seconds, label, **more)
        waiting, drain_seconds = self.drain() if self.is_counted else (0, 0.0)
        cpu, others = meter.read(generator)
        answered = sum(report["statuses"].values())
        lasted = min(report["seconds"], report["lasted_seconds"]) + drain_seconds
        result = {
            "claims": answered,
            "claims_per_second": (answered if self.is_counted else report["in_time"]) / lasted,
            "p50_ms": report["p50_us"] / 1000,
            "p99_ms": report["p99_us"] / 1000,
            "p999_ms": report["p999_us"] / 1000,
            "cpu_us_per_claim": {name: used * 1e6 / answered for name, used in cpu.items()},
            "other_cpus_busy": others / lasted,
        }
        if self.is_counted:
            result |= {"waiting_at_end": waiting, "drain_seconds": drain_seconds}
        grown = ledger.count() - count if ledger else None
        self.check(report, grown)
        if grown:
            result["grants"] = grown
            result["ledger_bytes_per_grant"] = (ledger.size_bytes() - size) / grown
            if wal is not None:
                result["wal_bytes_per_grant"] = (ledger.wal_bytes() - wal) / grown
        return result

    def drain(self):
        """Waits until the ledger has all that Redis granted. Returns how much waited, and how
        long it took."""
        ledger = self.server.ledger.id()
        began = time.monotonic()
        first = waiting = self.waiting(ledger)
        while waiting:
            if time.monotonic() - began > DRAIN_DEADLINE_SECONDS:
                raise Trouble(f"{self.title}: {waiting} grants still wait for the ledger")
            time.sleep(DRAIN_LOOK_SECONDS)
            waiting = self.waiting(ledger)
        return first, time.monotonic() - began if first else 0.0

    def waiting(self, ledger):
        return int(self.server.redis.query("EVAL", WAITING_LUA, 0, ledger))

    def check(self, report, grown):
        """Was it what we mean to measure?"""
        answered = report["statuses"]
        if set(answered) != {str(self.status)} or report["broken"]:
            raise Trouble(
                f"{self.title}: invalid: only {self.status} was to be answered, "
                f"but statuses were {answered}, and {report['broken']} requests broke"
            )
        granted = answered.get("201", 0)
        if grown is not None and grown != granted:
            raise Trouble(
                f"{self.title}: invalid: the ledger grew by {grown} grants, "
                f"and {granted} claims were answered 201"
            )
