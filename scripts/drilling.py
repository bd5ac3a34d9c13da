"""What the drills on real servers share: a cluster with the roles of docs/operations/postgresql.md, instances, and
clients that remember each grant that they were told of."""

import contextlib
import http.client
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
CLIENTS = 6
WAIT_SECONDS = 60
ANSWER_SECONDS = 20
GRANTED, REPLAYED, DENIED, UNAVAILABLE = 201, 200, 429, 503


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


class Cluster:
    """A PostgreSQL with perdiem's roles."""

    def __init__(self, postgres):
        self.postgres, self.programs = postgres, postgres.programs

    @classmethod
    def start(cls, stack, **settings):
        """Starts a server, and makes the roles."""
        cluster = cls(Postgres.start(stack, **settings))
        for sql in ROLES:
            cluster.query("postgres", sql)
        return cluster

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
        if status not in (GRANTED, REPLAYED, DENIED, UNAVAILABLE):
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

    def __init__(self, instances, choices):
        self.instances, self.choices = instances, choices
        self.grants, self.denied, self.failure = {}, 0, None
        self.lock, self.is_over = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._claim, args=(number,)) for number in range(CLIENTS)]

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
        if self.failure:
            raise Trouble(f"a client failed: {self.failure}")

    def _claim(self, number):
        dice = random.Random(number)
        try:
            with contextlib.ExitStack() as stack:
                links = [(each, stack.enter_context(contextlib.closing(each.connection()))) for each in self.instances]
                while not self.is_over.is_set():
                    wanted = Claim(*dice.choice(self.choices))
                    instance, connection = dice.choice(links)
                    status, grant = instance.claim(wanted, connection)
                    if status not in (GRANTED, DENIED):
                        raise Trouble(f"a claim got {status} while nothing was broken")
                    with self.lock:
                        if grant is None:
                            self.denied += 1
                        else:
                            self.grants[wanted] = grant
        except (Trouble, OSError, http.client.HTTPException) as failure:
            self.failure = failure


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
