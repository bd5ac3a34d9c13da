"""Starts the servers of a run, sends requests to them, and measures their CPU time. Each process ends
with the run."""

import contextlib
import csv
import datetime
import glob
import itertools
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "benches" / "peers"
DEADLINE_SECONDS = 60
# A hundred million entries are sealed in an hour.
FOLLOWERS_DEADLINE_SECONDS = 6 * 3600
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Counts the grants that wait for the ledger in the queues of all buckets.
WAITING_LUA = """
local waiting = 0
for bucket = 0, 255 do
  waiting = waiting + redis.call('XLEN', string.format('perdiem:{%s:%02x}:queue', ARGV[1], bucket))
end
return waiting
"""


class Trouble(Exception):
    """An error that the user must see."""


def run(command, **options):
    """Runs a command, which must succeed. Returns its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Trouble(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(package, **variables):
    """Builds a package as it is deployed. Returns its programs by name."""
    command = ["cargo", "build", "--profile=dist", "--locked"]
    command += ["--message-format=json-render-diagnostics"]
    built = subprocess.run(
        command, cwd=package, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    )
    if built.returncode != 0:
        raise Trouble(f"{package.name} could not be built")
    paths = (json.loads(line).get("executable") for line in built.stdout.splitlines())
    return {os.path.basename(path): path for path in paths if path}


def build_peers():
    """Builds the peers. limitador 0.14 without its storage on disk does not compile, because its module
    `bin` is missing. Only limits with an id use this module. A crate of that name replaces it."""
    target = ROOT / "target" / "peers"
    library = target / "dist" / "deps" / "libbin.rlib"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = PEERS / "lacking" / "bin.rs"
    run(["rustc", "--crate-type=rlib", "--edition=2024", "-O", "-o", library, source])
    return build(PEERS, CARGO_TARGET_DIR=str(target), RUSTFLAGS=f"--extern bin={library}")


def postgres_programs():
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    newest = max(found, key=lambda path: int(path.split("/")[4]), default=None)
    program = newest or shutil.which("postgres")
    if not program:
        raise Trouble("PostgreSQL is missing")
    return os.environ.get("PERDIEM_POSTGRES_BIN") or os.path.dirname(program)


def postgres_user():
    """The user of a server's processes: PostgreSQL does not run as root."""
    return "postgres" if os.geteuid() == 0 else None


def as_user(user=None, signal_name="INT"):
    """The start of a command line. The command runs as the user, and gets this signal when this script ends."""
    own = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
    return ["setpriv", f"--pdeathsig={signal_name}", *own, "--"]


def start(stack, command, log, **options):
    """Starts a process in its own session. The stack ends the process by its id."""
    output = stack.enter_context(open(log, "ab"))
    options = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL} | options
    process = subprocess.Popen(list(map(str, command)), start_new_session=True, **options)
    stack.callback(end, process)
    return process


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def folder(stack, user=None):
    """Makes a temporary folder, which the user owns."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="perdiem-bench-"))
    stack.callback(shutil.rmtree, path, ignore_errors=True)
    if user:
        shutil.chown(path, user, user)
    return path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(is_ready, process, log):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Trouble(f"{process.args[-1]} did not start:\n{log.read_text()}")
        time.sleep(0.05)


@dataclass
class Postgres:
    """A cluster with PostgreSQL's default settings, which are durable."""

    pid: int
    port: int
    programs: str

    @classmethod
    def start(cls, stack, **settings):
        place = folder(stack, postgres_user())
        initdb = [f"{postgres_programs()}/initdb", "-D", place / "data", "-U", "postgres", "-A", "trust"]
        run([*as_user(postgres_user()), *initdb, "-E", "UTF8", "--locale=C"])
        return cls.start_in(stack, place, **settings)

    @classmethod
    def start_in(cls, stack, place, **settings):
        """Starts a server on the cluster in the folder `data` of a place."""
        programs, port = postgres_programs(), free_port()
        data, log = place / "data", place / "log"
        command = [*as_user(postgres_user()), f"{programs}/postgres", "-D", data, "-p", port]
        settings |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        process = start(stack, command, log)
        ask = [f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_until(lambda: subprocess.run(ask).returncode == 0, process, log)
        return cls(process.pid, port, programs)

    def url(self, database):
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def psql(self, database, sql):
        """The command line that runs SQL, and prints its output without a frame."""
        psql = [f"{self.programs}/psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return [*psql, "-d", self.url(database), "-c", sql]

    def query(self, database, sql):
        return run(self.psql(database, sql)).strip()

    def copy(self, database, table, columns, rows):
        """Copies rows into a table. None is NULL."""
        copy = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT csv)"
        with subprocess.Popen(self.psql(database, copy), stdin=subprocess.PIPE, text=True) as process:
            csv.writer(process.stdin, lineterminator="\n").writerows(rows)
        if process.returncode != 0:
            raise Trouble(f"{table} could not be filled")


@dataclass
class Redis:
    """A Redis that evicts nothing and saves nothing."""

    pid: int
    port: int

    @classmethod
    def start(cls, stack):
        place, port = folder(stack), free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", place]
        command += ["--maxmemory-policy", "noeviction", "--save", ""]
        process = start(stack, [*as_user(), *command], place / "log")

        def is_ready():
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        wait_until(is_ready, process, place / "log")
        return cls(process.pid, port)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def waiting(self, ledger_id):
        """Returns how many grants wait for the ledger."""
        command = ["redis-cli", "-p", self.port, "EVAL", WAITING_LUA, 0, ledger_id]
        return int(run(command))


class PostgresLedger:
    def __init__(self, postgres, database):
        postgres.query("postgres", f"CREATE DATABASE {database}")
        self.query = lambda sql: postgres.query(database, sql)
        self.copy = lambda *rows: postgres.copy(database, *rows)
        self.url = postgres.url(database)
        self.processes = {"PostgreSQL": postgres.pid}

    def size_bytes(self):
        """The size of the tables of entries and accounts, with their indexes."""
        tables = "ARRAY['entries'::regclass, 'accounts'::regclass]"
        return int(self.query(f"SELECT sum(pg_total_relation_size(t)) FROM unnest({tables}) AS t"))


class SqliteLedger:
    # SQLite runs in perdiem's process.
    processes = {}

    def __init__(self, stack):
        self.path = folder(stack) / "perdiem.db"
        self.url = f"sqlite:{self.path}"

    def query(self, sql):
        uri = f"file:{self.path}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(sql).fetchone()[0]

    def size_bytes(self):
        return self.query("PRAGMA page_count") * self.query("PRAGMA page_size")


@dataclass
class Server:
    """A running server that answers claims."""

    address: str
    secret: str
    # The processes whose CPU time counts, by name. The first one is the server's.
    processes: dict
    # None for a server that records nothing.
    ledger: object = None
    redis: Redis | None = None

    @classmethod
    def perdiem(cls, stack, binary, ledger, redis=None, secret=None, seal_key_file=None):
        """Starts an instance. All instances on one ledger need the same secret."""
        secret = secret or secrets.token_hex(24)
        own = {"PERDIEM_ADMIN_KEY": secret, "DATABASE_URL": ledger.url}
        own |= {"PERDIEM_SEAL_KEY_FILE": str(seal_key_file)} if seal_key_file else {}
        own |= {"REDIS_URL": redis.url} if redis else {}
        address, pid = start_server(stack, [binary, "serve", "--bind", "127.0.0.1:0"], own)
        processes = {"perdiem": pid} | ledger.processes | ({"Redis": redis.pid} if redis else {})
        return cls(address, secret, processes, ledger, redis)

    @classmethod
    def peer(cls, stack, command, redis=None):
        """Starts our server for a peer of perdiem."""
        secret = secrets.token_hex(24)
        command = [*command, "--redis-url", redis.url] if redis else command
        address, pid = start_server(stack, command, {"PEER_SECRET": secret})
        return cls(address, secret, {"peer": pid} | ({"Redis": redis.pid} if redis else {}))

    def put_policy(self, name, limits, **more):
        """Makes a policy whose midnight is far away, so that no day ends during the run."""
        hour = datetime.datetime.now(datetime.timezone.utc).hour
        rule = {"time_zone": f"{12 - hour:+03d}:00", "limits": limits} | more
        self.open("PUT", f"/v1/policies/{name}", rule)

    def get(self, path):
        return json.loads(self.open("GET", path)[1])

    def recorded(self):
        """The newest position of the record."""
        return self.get("/v1/entries?limit=1")["as_of"]

    def counted(self):
        """The position up to which the figures are made."""
        return self.get("/v1/stats?limit=1")["as_of"]

    def sealed(self):
        """The position up to which the record is sealed: 0 also while the sealer begins."""
        try:
            return self.get("/v1/seals/latest")["size"]
        except urllib.error.HTTPError as error:
            if error.code in (404, 409):
                return 0
            raise

    def samples(self):
        """Reads /metrics. Returns the samples by their names with labels."""
        lines = self.open("GET", "/metrics")[1].splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def open(self, method, path, body=None, **headers):
        """Sends a request. Returns the headers and the text of the answer."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.secret}"} | headers,
        )
        with urllib.request.urlopen(request) as answer:
            return answer.getheaders(), answer.read().decode()


def start_server(stack, command, variables):
    """Starts a server that prints its address in its first line. Returns the address and the process id."""
    foreign = ("PERDIEM_", "DATABASE_URL", "REDIS_URL")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    log = folder(stack) / "log"
    process = start(
        stack, [*as_user(), *command], log, env=ours | variables, stdout=subprocess.PIPE, text=True
    )
    welcome = re.search(r"http://([0-9.:]+)", process.stdout.readline())
    if welcome is None:
        raise Trouble(f"{command[0]} did not start:\n{log.read_text()}")
    return welcome[1], process.pid


def cpu_seconds(pid):
    """The CPU time of a process and its children, also of children that have ended."""
    total = sum(stat_fields(pid)[10:14])
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # A child that ends during this loop is counted with the ended children next time.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += sum(stat_fields(child)[10:12])
    return total / TICKS_PER_SECOND


def stat_fields(pid):
    """The numbers of /proc/PID/stat, from the parent's id on."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    _state, *numbers = text.rsplit(")", 1)[1].split()
    return [int(number) for number in numbers]


def wait_for(what, reached, position):
    """Waits until a follower has reached a position. Returns how many seconds that took."""
    began = time.monotonic()
    while reached() < position:
        if time.monotonic() > began + FOLLOWERS_DEADLINE_SECONDS:
            raise Trouble(f"{what} are still behind")
        time.sleep(0.5)
    return time.monotonic() - began


def peak_mib(pid):
    """The highest memory of a process since `forget_peak`."""
    return memory_mib(pid, "VmHWM")


def memory_mib(pid, name="VmRSS"):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def forget_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def measured(line, variables, output=subprocess.DEVNULL):
    """Runs a command. Returns its time in seconds and its peak of memory in MiB."""
    began = time.monotonic()
    process = subprocess.Popen(list(map(str, line)), env=os.environ | variables, stdout=output)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Trouble(f"{line[1]} failed")
    return time.monotonic() - began, usage.ru_maxrss / 1024


def claim_all(server, claims, batch, senders=4):
    """Sends claims in batches, from several threads. All must be granted."""
    claims = iter(claims)
    batches = iter(lambda: list(itertools.islice(claims, batch)), [])
    lock, troubles = threading.Lock(), []

    def send():
        while not troubles:
            with lock:
                some = next(batches, None)
            if some is None:
                return
            try:
                answer = json.loads(server.open("POST", "/v1/claims", {"claims": some})[1])
            except urllib.error.URLError as error:
                troubles.append(error)
                return
            if refused := [item for item in answer["items"] if item["status"] != 201]:
                troubles.append(Trouble(f"a claim was not granted: {refused[0]}"))

    threads = [threading.Thread(target=send) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise troubles[0]
