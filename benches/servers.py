"""The servers of a run: PostgreSQL, Redis, perdiem and its peers, on free ports."""

import datetime
import json
import os
import re
import secrets
import socket
import subprocess
import urllib.request
from dataclasses import dataclass

from ledgers import PostgresLedger, SqliteLedger
from processes import (
    Trouble,
    as_user,
    environment_without,
    folder,
    free_port,
    run,
    running,
    wait_until,
)
from programs import NODE_PEER


@dataclass
class Postgres:
    """A running cluster."""

    pid: int
    port: int
    programs: str

    def url(self, database):
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def query(self, database, sql):
        """What psql prints, without a frame."""
        psql = [f"{self.programs}/psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return run([*psql, "-d", self.url(database), "-c", sql]).strip()

    def create(self, database):
        self.query("postgres", f"CREATE DATABASE {database}")


@dataclass
class Redis:
    """A running Redis."""

    pid: int
    port: int

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def query(self, *command):
        """The answer of a command, as redis-cli prints it."""
        answer = run(["redis-cli", "-p", str(self.port), *map(str, command)]).strip()
        if answer.startswith(("ERR", "NOSCRIPT", "WRONGTYPE")):
            raise Trouble(f"Redis said: {answer}")
        return answer


@dataclass
class Server:
    """A running server of claims."""

    address: str
    secret: str
    # By name, the processes whose CPU time counts. Of all, the first is the server's own.
    processes: dict[str, int]
    # None of what records nothing.
    ledger: PostgresLedger | SqliteLedger | None = None
    redis: Redis | None = None

    def put_policy(self, name, limits, **more):
        """Makes a policy whose days end far from now."""
        rule = {"time_zone": zone_where_it_is_noon(), "limits": limits} | more
        self.request("PUT", f"/v1/policies/{name}", rule)

    def request(self, method, path, body=None):
        with self.open(method, path, body) as answer:
            return json.load(answer)

    def samples(self):
        """What /metrics tells, by the samples' names with their labels."""
        with self.open("GET", "/metrics") as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def open(self, method, path, body=None, **headers):
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.secret}"} | headers,
        )
        return urllib.request.urlopen(request)


def zone_where_it_is_noon():
    """A fixed offset whose midnight is far away: no day ends while we measure."""
    return f"{12 - datetime.datetime.now(datetime.timezone.utc).hour:+03d}:00"


def start_postgres(stack, programs, **settings):
    """A cluster with these settings, and PostgreSQL's defaults otherwise, which are durable."""
    user = "postgres" if os.geteuid() == 0 else None
    place = stack.enter_context(folder(user))
    data, log = place / "data", place / "log"
    port = free_port()
    initdb = [f"{programs.postgres}/initdb", "-D", data, "-U", "postgres", "-A", "trust"]
    run(as_user(user) + initdb + ["-E", "UTF8", "--locale=C"])
    command = [f"{programs.postgres}/postgres", "-D", data, "-p", str(port)]
    settings |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    process = stack.enter_context(running(as_user(user) + command, log))
    is_ready = [f"{programs.postgres}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    wait_until(lambda: subprocess.run(is_ready).returncode == 0, process, log)
    return Postgres(process.pid, port, programs.postgres)


def start_redis(stack):
    """A Redis that evicts nothing and saves nothing."""
    place = stack.enter_context(folder())
    log, port = place / "log", free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port)]
    settings = ["--maxmemory-policy", "noeviction", "--save", "", "--dir", place]
    process = stack.enter_context(running(as_user() + command + settings, log))

    def is_ready():
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_until(is_ready, process, log)
    return Redis(process.pid, port)


def start_perdiem(stack, binary, postgres=None, database=None, redis=None):
    """A perdiem on a new database of PostgreSQL's, or on SQLite without one."""
    if postgres:
        postgres.create(database)
        ledger = PostgresLedger(postgres, database)
    else:
        ledger = SqliteLedger(stack.enter_context(folder()) / "perdiem.db")
    return start_instance(stack, binary, ledger, secrets.token_hex(24), redis)


def start_instance(stack, binary, ledger, secret, redis=None):
    """A perdiem on a ledger that may have other instances, which take the same secret."""
    place = stack.enter_context(folder())
    environment = environment_without(["PERDIEM_", "DATABASE_URL", "REDIS_URL"])
    environment |= {"PERDIEM_ADMIN_KEY": secret, "DATABASE_URL": ledger.url}
    if redis:
        environment["REDIS_URL"] = redis.url
    command = [binary, "serve", "--bind", "127.0.0.1:0"]
    address, pid = start_server(stack, command, environment, place / "log")
    processes = {"perdiem": pid} | ledger.processes
    if redis:
        processes["Redis"] = redis.pid
    return Server(address, secret, processes, ledger, redis)


def start_peer(stack, name, command, redis=None):
    """A peer of perdiem's, whose counters are in Redis, or in memory without one."""
    place = stack.enter_context(folder())
    secret = secrets.token_hex(24)
    environment = environment_without(["PERDIEM_"]) | {"PEER_SECRET": secret}
    if redis:
        command = [*command, "--redis-url", redis.url]
    address, pid = start_server(stack, command, environment, place / "log")
    processes = {name: pid} | ({"Redis": redis.pid} if redis else {})
    return Server(address, secret, processes, redis=redis)


def start_limitador(stack, programs, redis=None, options=()):
    return start_peer(stack, "peer", [programs.limitador, *options], redis)


def start_nothing(stack, programs, server):
    """A route that answers every claim with the bytes that `server` answers one with."""
    claim = {"subject": "nothing-64-1-0-000000001"}
    key = {"Idempotency-Key": "nothing-64-1.0.000000001"}
    with server.open("POST", "/v1/policies/benefit/claims", claim, **key) as answer:
        fields = [(name.lower(), value) for name, value in answer.getheaders()]
        command = [programs.nothing, f"--body={answer.read().decode()}"]
    own = ("connection", "content-length", "date")
    command += [f"--field={name}: {value}" for name, value in fields if name not in own]
    return start_peer(stack, "peer", command)


def start_flexible(stack, redis):
    return start_peer(stack, "peer", ["node", NODE_PEER / "server.js"], redis)


def start_server(stack, command, environment, log):
    """Starts what tells its address in its first line. Returns that and its id."""
    process = stack.enter_context(
        running(
            as_user() + command, log, env=environment, stdout=subprocess.PIPE, text=True
        )
    )
    welcome = re.search(r"http://([0-9.:]+)", process.stdout.readline())
    if welcome is None:
        raise Trouble(f"{command[0]} did not start:\n{log.read_text()}")
    return welcome[1], process.pid
