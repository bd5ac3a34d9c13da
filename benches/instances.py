"""A contestant whose instance is started again before each round."""

import contextlib
from dataclasses import dataclass

from claims import Claims
from processes import Trouble
from servers import start_instance

# More than a round claims of: a round that comes to the last of them ends there.
RETURNING_SUBJECTS = 200_000
# A subject returns once a round, and never is denied.
RETURNS_MOST = 1000
FIRST_CLAIMS_SECONDS = 300


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
