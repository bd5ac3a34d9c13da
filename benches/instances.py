"""Contestants that need more of an instance than that it runs: one that is started again before
each round, and two that take turns."""

import contextlib
from dataclasses import dataclass

from claims import Claims
from processes import Trouble
from servers import Server, start_instance

# More than a round claims of: a round that comes to the last of them ends there.
RETURNING_SUBJECTS = 200_000
# A subject returns once a round, and never is denied.
RETURNS_MOST = 1000
FIRST_CLAIMS_SECONDS = 300
FALLEN_BACK = "perdiem_bursts_fallen_back_total"
APPENDS = 'perdiem_stage_seconds_count{stage="append"}'


@dataclass(kw_only=True)
class Returning(Claims):
    """Claims of subjects that have older entries, each once a round, by an instance that was
    started after these."""

    binary: str
    # Ends the instance, and nothing else.
    life: contextlib.ExitStack
    have_entries: bool = False

    def once_each(self, connections):
        share = RETURNING_SUBJECTS // min(self.threads, connections)
        return {"subjects": "returning", "count": share, "times": 1, "requests": share}

    def warm_up(self, connections, seconds, label):
        """Fills the caches with claims of fresh subjects."""
        if not self.have_entries:
            self.claim_first(connections, label)
            self.have_entries = True
        self.life.close()
        ended = self.server
        self.server = start_instance(
            self.life, self.binary, ended.ledger, ended.secret, ended.redis
        )
        super().warm_up(connections, seconds, label)

    def claim_first(self, connections, label):
        options = self.once_each(connections)
        wanted = options["count"] * min(self.threads, connections)
        report, _ = self.send(connections, FIRST_CLAIMS_SECONDS, f"{label}-first", **options)
        if report["statuses"] != {"201": wanted}:
            raise Trouble(f"{self.title}: first claims were answered {report['statuses']}")

    def measure(self, connections, seconds, label):
        accounts = self.accounts()
        options = self.once_each(connections)
        result = super().measure(connections, seconds, label, **options)
        fresh = self.accounts() - accounts
        if fresh:
            raise Trouble(f"{self.title}: invalid: {fresh} subjects had no older entry")
        return result

    def accounts(self):
        return int(self.server.ledger.query("SELECT count(*) FROM entries WHERE number = 1"))


@dataclass(kw_only=True)
class InTurns(Claims):
    """Two instances on one ledger and one Redis, to which each subject's claims go in turns."""

    partner: Server

    def __post_init__(self):
        self.server.processes["partner"] = self.partner.processes["perdiem"]

    @property
    def addresses(self):
        return [self.server.address, self.partner.address]

    def measure(self, connections, seconds, label):
        before = self.samples()
        result = super().measure(connections, seconds, label)
        fallen_back, *appends = (
            after - first for after, first in zip(self.samples(), before, strict=True)
        )
        if min(appends) == 0:
            raise Trouble(f"{self.title}: invalid: an instance appended nothing")
        cpu = result["cpu_us_per_claim"]
        cpu["perdiem"] += cpu.pop("partner")
        result["bursts_fallen_back"] = fallen_back / sum(appends)
        return result

    def samples(self):
        """How many bursts fell back in both, and how often each of them appended."""
        seen = [self.server.samples(), self.partner.samples()]
        # An older perdiem, as --against may name, has no bursts.
        fallen_back = sum(one.get(FALLEN_BACK, 0) for one in seen)
        return fallen_back, *(one[APPENDS] for one in seen)
