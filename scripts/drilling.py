"""What the drills on real servers share: a cluster with the roles of docs/operations/postgresql.md, instances, and
clients that remember each grant that they were told of."""

import bisect
import contextlib
import http.client
import itertools
import json
import random
import secrets
import subprocess
import threading
import time
import urllib.parse
from dataclasses import dataclass, field

from checking import Trouble, running, settings
from lab import Postgres

# What docs/operations/postgresql.md makes before the first start.
ROLES = (
    "CREATE ROLE perdiem_service NOLOGIN",
    "CREATE ROLE perdiem LOGIN IN ROLE perdiem_service",
    "CREATE ROLE perdiem_owner LOGIN",
)
CLIENTS, BURST = 6, 24
WAIT_SECONDS = 60
ANSWER_SECONDS = 20
GRANTED, REPLAYED, DENIED, UNAVAILABLE = 201, 200, 429, 503
# Another claim with the same key is being decided.
IN_PROGRESS = 409
# How often a patient client claims, and how soon it tries again.
CLAIM_SECONDS, RETRY_SECONDS = 0.1, 0.05
DATABASE = "perdiem"


def wait_until(what, is_true):
    """Waits until a condition holds. Returns its value."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (value := is_true()):
        if time.monotonic() > deadline:
            raise Trouble(f"not within {WAIT_SECONDS} s: {what}")
        time.sleep(0.05)
    return value


def ended(*command, **variables):
    """Runs a command to its end."""
    command = list(map(str, command))
    return subprocess.run(command, env=settings(**variables), capture_output=True, text=True, timeout=WAIT_SECONDS)


def done(*command, **variables):
    """Runs a command that must succeed. Returns its standard output."""
    process = ended(*command, **variables)
    if process.returncode != 0:
        raise Trouble(f"{' '.join(process.args)}: exit code {process.returncode}\n{process.stdout}{process.stderr}")
    return process.stdout


def refused(code, words, *command, **variables):
    """Runs a command that must fail with an exit code and say some words."""
    process = ended(*command, **variables)
    if process.returncode != code or words not in process.stderr:
        found = f"{process.returncode}\n{process.stdout}{process.stderr}"
        raise Trouble(f"{' '.join(process.args)}: expected exit code {code} and “{words}”, and got {found}")


class Drill:
    """What a drill runs, with a folder for it. Its instances push seals."""

    def __init__(self, perdiem, folder):
        self.perdiem, self.folder, self.key = perdiem, folder, secrets.token_hex(24)
        self.seal_key, self.public = folder / "seal.key", folder / "seal.pub"
        self.public.write_text(done(perdiem, "seal", "new-key", self.seal_key).splitlines()[-1])
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.began = time.monotonic()

    def tell(self, text):
        print(f"{time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    def serve(self, stack, name, **variables):
        """Starts an instance with these stores."""
        seals = {"PERDIEM_SEAL_KEY_FILE": str(self.seal_key), "PERDIEM_SEAL_TO": f"file:{self.outside}"}
        return Instance.start(stack, self.perdiem, self.folder / f"{name}.log", self.key, **seals, **variables)

    def migrate(self, cluster, database=DATABASE):
        done(self.perdiem, "migrate", DATABASE_URL=cluster.owners_url(database))

    def keep_seal(self, name):
        """Keeps a copy of the newest seal outside."""
        kept = self.folder / name
        kept.write_text(wait_until("a seal is outside", lambda: self.pushed() and self.pushed()[0]))
        return kept

    def pushed(self):
        """The newest seal outside and its size, or nothing."""
        with contextlib.suppress(FileNotFoundError):
            text = (self.outside / "checkpoint").read_text()
            return text, int(text.splitlines()[1])

    def wait_for_seals(self, instance, grants):
        """Waits until the newest seal is outside and has all positions: those of so many grants, and of acts."""
        def is_sealed():
            # An entry gets its position soon after its commit.
            positions = instance.ask("GET", "/v1/entries?limit=1")[1]["as_of"]
            return (pushed := self.pushed()) and pushed[1] >= positions >= len(grants)
        wait_until("all is sealed and outside", is_sealed)

    def verify(self, cluster, seal, database=DATABASE):
        done(self.perdiem, "verify", "--key", self.public, "--seal", seal, DATABASE_URL=cluster.owners_url(database))

    def reconcile(self, instance, *words):
        report = json.loads(instance.run(self.perdiem, "reconcile", "--json", *words))
        if report["difference_count"] or report["alarm_count"]:
            raise Trouble(f"the reconciliation found differences: {report}")
        return report


class Cluster:
    """A PostgreSQL with perdiem's roles."""

    def __init__(self, postgres):
        self.postgres, self.programs = postgres, postgres.programs

    @classmethod
    def start(cls, stack, **settings):
        """Starts a server, and makes the roles."""
        cluster = cls(Postgres.start(stack, **settings))
        cluster.make_roles()
        return cluster

    def make_roles(self):
        for sql in ROLES:
            self.query("postgres", sql)

    def make_database(self, name):
        sql = f"CREATE DATABASE {name} OWNER perdiem_owner ENCODING 'UTF8' TEMPLATE template0"
        self.postgres.query("postgres", sql)

    def url(self, database, user="perdiem"):
        return f"postgres://{user}@127.0.0.1:{self.postgres.port}/{database}"

    def owners_url(self, database):
        return self.url(database, "perdiem_owner")

    def query(self, database, sql):
        return self.postgres.query(database, sql)


@dataclass(frozen=True)
class Instance:
    url: str
    key: str

    @classmethod
    def start(cls, stack, perdiem, log, key, **variables):
        variables = settings(PERDIEM_ADMIN_KEY=key, **variables)
        command = [perdiem, "serve", "--bind", "127.0.0.1:0"]
        url, _ = stack.enter_context(running(command, log, env=variables))
        return cls(url, key)

    def connection(self):
        place = urllib.parse.urlsplit(self.url)
        return http.client.HTTPConnection(place.hostname, place.port, timeout=ANSWER_SECONDS)

    def ask(self, method, path, body=None, connection=None, **headers):
        """Sends a request. Returns the status, and the answer if it is JSON."""
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(contextlib.closing(self.connection()))
            headers = {"Authorization": f"Bearer {self.key}"} | headers
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in answer.getheader("content-type", "")
            return answer.status, json.loads(text) if is_json else text.decode()

    def claim(self, wanted, connection=None):
        """Sends a claim. Returns the status and the grant's id."""
        path = f"/v1/policies/{wanted.policy}/claims"
        headers = {"Idempotency-Key": wanted.key}
        status, answer = self.ask("POST", path, {"subject": wanted.subject}, connection, **headers)
        if status not in (GRANTED, REPLAYED, DENIED, UNAVAILABLE, IN_PROGRESS):
            raise Trouble(f"a claim got {status}: {answer}")
        return status, answer["grant"]["id"] if status in (GRANTED, REPLAYED) else None

    def run(self, perdiem, *words):
        """Runs a command of perdiem against the instance, which must succeed."""
        return done(perdiem, *words, PERDIEM_URL=self.url, PERDIEM_KEY=self.key)

    def readiness(self):
        return self.ask("GET", "/readyz")


@dataclass(frozen=True)
class Claim:
    policy: str
    subject: str
    key: str = field(default_factory=lambda: secrets.token_hex(12))


class Clients:
    """Clients that claim at random until they are ended. They remember the grant of each claim."""

    def __init__(self, instances, choices, count=CLIENTS):
        self.instances, self.choices = instances, choices
        self.grants, self.denied, self.failure = {}, 0, None
        self.lock, self.is_over = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._claim, args=(number,)) for number in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def granted_more(self, count):
        """Waits for so many more grants."""
        wanted = len(self.grants) + count
        wait_until(f"{count} more grants", lambda: self.failure or len(self.grants) >= wanted)
        self.check()

    def check(self):
        if self.failure:
            raise Trouble(f"a client failed: {self.failure}")

    def _claim(self, number):
        dice = random.Random(number)
        try:
            with contextlib.ExitStack() as stack:
                links = [(each, stack.enter_context(contextlib.closing(each.connection()))) for each in self.instances]
                while not self.is_over.is_set():
                    wanted = Claim(*self._choice(dice))
                    grant = self._decision(wanted, dice, links)
                    with self.lock:
                        if grant is None:
                            self.denied += 1
                        else:
                            self.grants[wanted] = grant
        except (Trouble, OSError, http.client.HTTPException) as failure:
            self.failure = failure

    def _choice(self, dice):
        return dice.choice(self.choices)

    def _decision(self, wanted, dice, links):
        """Claims. Returns the grant's id, or nothing after a denial."""
        instance, connection = dice.choice(links)
        status, grant = instance.claim(wanted, connection)
        if status not in (GRANTED, DENIED):
            raise Trouble(f"a claim got {status} while nothing was broken")
        return grant


class PatientClients(Clients):
    """Clients of servers that fail. A claim whose outcome is unknown is sent again, with its key and to any instance,
    until it is decided. The clients claim for few subjects, which are others after each hundred grants, so that limits
    are near at any time."""

    def __init__(self, instances, policies):
        super().__init__(instances, list(policies), BURST)
        self.retried, self.granted_at = set(), {instance: [] for instance in instances}

    def _choice(self, dice):
        # More claims would only make the checks at the end longer.
        self.is_over.wait(CLAIM_SECONDS)
        return dice.choice(self.choices), f"member-{len(self.grants) // 100}-{dice.randrange(25)}"

    def _decision(self, wanted, dice, links):
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            instance, connection = dice.choice(links)
            try:
                status, grant = instance.claim(wanted, connection)
            except (OSError, http.client.HTTPException):
                connection.close()
            else:
                if status == GRANTED:
                    self.granted_at[instance].append(time.monotonic())
                if status in (GRANTED, DENIED) or (status == REPLAYED and wanted in self.retried):
                    return grant
                if status == REPLAYED:
                    raise Trouble(f"{wanted} is new, and got a replay")
            self.retried.add(wanted)
            self.is_over.wait(RETRY_SECONDS)
        raise Trouble(f"not decided within {WAIT_SECONDS} s: {wanted}")

    def granted_by_each(self, count):
        """Waits until each instance has granted so many more claims."""
        wanted = {instance: len(times) + count for instance, times in self.granted_at.items()}

        def have_granted():
            return all(len(self.granted_at[instance]) >= most for instance, most in wanted.items())
        wait_until(f"{count} more grants by each instance", lambda: self.failure or have_granted())
        self.check()

    def longest_gap(self, instance, since):
        """The longest time without a grant of an instance, in seconds: from the last one before an instant to now."""
        times = self.granted_at[instance]
        first = max(bisect.bisect(times, since) - 1, 0)
        return max(after - before for before, after in itertools.pairwise(times[first:]))


def claim_all(instances, claims):
    """Sends claims, each to the next instance. Returns the status and the grant of each."""
    links = [(each, each.connection()) for each in instances]
    found = {}
    for number, claim in enumerate(claims):
        instance, connection = links[number % len(links)]
        found[claim] = instance.claim(claim, connection)
    for _, connection in links:
        connection.close()
    return found


def replay(instances, told):
    """Sends claims again, at both instances. Each must get its grant."""
    for each in (instances, instances[::-1]):
        for claim, (status, grant) in claim_all(each, told).items():
            if (status, grant) != (REPLAYED, told[claim]):
                raise Trouble(f"{claim} got {status} and {grant}, not the grant {told[claim]}")


def put_policies(instance, policies):
    """Makes policies, by their limits. The midnight of each is far away, so that no day ends during the drill."""
    hour = time.gmtime().tm_hour
    for name, limit in policies.items():
        rule = {"time_zone": f"{12 - hour:+03d}:00", "limits": [limit]}
        status, answer = instance.ask("PUT", f"/v1/policies/{name}", rule)
        if status not in (200, 201):
            raise Trouble(f"the policy {name} got {status}: {answer}")


def recorded_grants(cluster, database):
    """The grants of a ledger: the policy and the subject of each id."""
    rows = cluster.query(database, "SELECT id, policy, subject FROM grant_rows")
    lines = [line.split("|") for line in rows.splitlines()]
    found = {grant: (policy, subject) for grant, policy, subject in lines}
    if len(found) != len(lines):
        raise Trouble("the ledger has a grant twice")
    return found


def check_limits(grants, policies):
    """Checks that no subject has more grants than its policy's max. Returns the counts."""
    counts = {}
    for account in grants.values():
        counts[account] = counts.get(account, 0) + 1
    for (policy, subject), count in counts.items():
        if count > policies[policy]["max"]:
            raise Trouble(f"{subject} has {count} grants of {policy}, whose max is {policies[policy]['max']}")
    return counts


def listed(instance, path):
    """All items of a list, and its last page."""
    items, page = [], {"next_cursor": ""}
    while page["next_cursor"] is not None:
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
        status, page = instance.ask("GET", f"{path}?limit=1000{cursor}")
        if status != 200:
            raise Trouble(f"{path} got {status}: {page}")
        items += page["items"]
    return items, page


def check_positions(instance, grants):
    """Checks that the record has each grant once, and a position for each entry and each change, without a gap."""
    entries, page = listed(instance, "/v1/entries")
    changes, _ = listed(instance, "/v1/changes")
    positions = [entry["position"] for entry in entries]
    if sorted(set(positions)) != positions:
        raise Trouble("the record has a position twice, or not in order")
    if page["as_of"] != len(entries) + len(changes):
        raise Trouble(f"{page['as_of']} positions for {len(entries)} entries and {len(changes)} changes")
    of_grants = [entry["id"] for entry in entries if entry["kind"] == "grant"]
    if sorted(of_grants) != sorted(grants):
        raise Trouble(f"the record has {len(of_grants)} grants, and the ledger {len(grants)}")


def check_figures(instance, perdiem, grants):
    """Checks that the statistics get the grants of the entries, and no others. A grant is in the record, which the
    statistics follow, soon after its answer."""
    counted = {}
    for policy, _ in grants.values():
        counted[policy] = counted.get(policy, 0) + 1
    told = {}

    def are_equal():
        told.clear()
        for day in json.loads(instance.run(perdiem, "stats", "--wait", "--json")):
            told[day["policy"]] = told.get(day["policy"], 0) + day["grants"]
        return told == counted
    try:
        wait_until("the statistics have the entries", are_equal)
    except Trouble as trouble:
        raise Trouble(f"{trouble}: the statistics say {told}, and the entries {counted}") from None
