"""Three machines with etcd, Patroni and PostgreSQL, and one with haproxy, by the files of
docs/operations/high-availability.md. Their processes run on this machine, on free ports, and end with the stack."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import urllib.request

from checking import ROOT, Trouble, python_tools
from drilling import Cluster, done, wait_until
from lab import Postgres, as_user, folder, postgres_programs, postgres_user, start
from lab import Trouble as LabTrouble

PAGE = ROOT / "docs" / "operations" / "high-availability.md"
PINS = ROOT / "tests" / "patroni" / "requirements.txt"
# The machines of the page: 10.0.0.1 and so on.
MACHINES, PROXY = (1, 2, 3), 9
ANSWER_SECONDS = 1


class Page:
    """The files of the page. A free port of this machine takes the place of each address."""

    def __init__(self):
        self.text, self.ports = PAGE.read_text(), {}

    def port(self, machine, port):
        place = int(machine), int(port)
        if place not in self.ports:
            self.ports[place] = own_port()
        return self.ports[place]

    def file(self, path, machine=1):
        """A file of a machine. The page shows that of the first. A line that names another one is the same on all."""
        text = re.search(rf"^```\w*\n# {re.escape(path)}\b.*?\n(.*?)^```$", self.text, re.M | re.S)[1]
        own = re.compile(r"^(?!.*10\.0\.0\.2).*(?:pg1|10\.0\.0\.1:).*$", re.M)
        text = own.sub(lambda line: line[0].replace("pg1", f"pg{machine}").replace("0.1:", f"0.{machine}:"), text)
        text = re.sub(r"10\.0\.0\.(\d):(\d+)( port (\d+))?", self._here, text)
        return text.replace("10.0.0.0/24 scram-sha-256", "127.0.0.1/32 trust")

    def _here(self, found):
        machine, port, _, checked = found.groups()
        here = f"127.0.0.1:{self.port(machine, port)}"
        return f"{here} port {self.port(machine, checked)}" if checked else here

    def setting(self, name):
        return int(re.search(rf"^ *{name}: (\d+)$", self.text, re.M)[1])


def own_port():
    """A free port that no connection of another program gets from the kernel while a killed server is away."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


class Node:
    """A machine with etcd, Patroni, and the PostgreSQL that Patroni starts."""

    def __init__(self, stack, page, machine):
        self.name, self.place = f"pg{machine}", folder(stack, postgres_user())
        self.port, self.rest_port = page.port(machine, 5432), page.port(machine, 8008)
        self.cluster = Cluster(Postgres(0, self.port, postgres_programs()))
        text = page.file("/etc/patroni/perdiem.yml", machine)
        text = text.replace("/usr/lib/postgresql/15/bin", postgres_programs())
        text = text.replace("/var/lib/postgresql/perdiem", str(self.place))
        # The page ends with the section of PostgreSQL.
        text += "  parameters: {unix_socket_directories: ''}\n"
        self.config = self.place / "perdiem.yml"
        self.config.write_text(text)
        self.etcd = dict(line.split("=", 1) for line in page.file("/etc/default/etcd", machine).splitlines())
        self.etcd["ETCD_DATA_DIR"] = str(self.place / "etcd")
        self.services, self.frozen = [], []

    def start(self, stack):
        # Patroni ends its PostgreSQL, if it can.
        user = as_user(postgres_user(), "TERM")
        self.services = [
            start(stack, [*user, "etcd"], self.place / "etcd.log", env=os.environ | self.etcd),
            start(stack, [*user, python_tools(PINS) / "patroni", self.config], self.place / "patroni.log"),
        ]
        # Runs before the ends of both. Nobody else ends the PostgreSQL of a Patroni that was killed.
        stack.callback(self.kill)

    def freeze(self):
        """Stops Patroni and PostgreSQL, first those that start others. An etcd 3.4 that leads the others, is frozen and
        wakes up can take the leader key from its holder, so it goes on: see the page."""
        self._stop(self.services[1:])

    def _stop(self, services):
        self.frozen = []
        while left := [pid for pid in self._processes(services) if pid not in self.frozen]:
            send(signal.SIGSTOP, left)
            self.frozen += left

    def freeze_replay(self):
        """Stops the process that replays on a standby."""
        self.frozen = [pid for pid in self._postgres() if "startup recovering" in command_line(pid)]
        send(signal.SIGSTOP, self.frozen)

    def kill(self):
        self._stop(self.services)
        send(signal.SIGKILL, self.frozen)
        for service in self.services:
            service.wait()
        wait_until(f"{self.name} is dead", lambda: not self._postgres())

    def wake_postgres(self):
        send(signal.SIGCONT, self._postgres())

    def wake(self):
        send(signal.SIGCONT, self.frozen)

    def _processes(self, services):
        return [service.pid for service in services if service.poll() is None] + self._postgres()

    def _postgres(self):
        with contextlib.suppress(OSError, ValueError):
            postmaster = int((self.place / "data" / "postmaster.pid").read_text().splitlines()[0])
            # Another process can have the id of one that has ended.
            if os.readlink(f"/proc/{postmaster}/cwd") == str(self.place / "data"):
                children = pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
                return [postmaster, *map(int, children.split())]
        return []

    def check(self):
        for service, log in zip(self.services, ("etcd.log", "patroni.log")):
            if service.poll() is not None:
                raise Trouble(f"{self.name} does not run:\n{(self.place / log).read_text()[-2000:]}")

    def agrees(self, role):
        """Whether Patroni says that the node has a role. Load balancers ask the same."""
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest_port}/{role}", timeout=ANSWER_SECONDS):
                return True
        return False

    def query(self, sql):
        return self.cluster.query("postgres", sql)

    def takes_writes(self):
        return self.query("SELECT pg_is_in_recovery()") == "f"


def command_line(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def send(kind, pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, kind)


class Nodes:
    """The machines, and haproxy before them."""

    def __init__(self, stack):
        self.page = page = Page()
        self.setting = page.setting
        self.all = [Node(stack, page, machine) for machine in MACHINES]
        self.hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.all)
        self.proxy = Postgres(0, page.port(PROXY, 5432), postgres_programs())
        for node in self.all:
            node.start(stack)
        config = folder(stack) / "haproxy.cfg"
        config.write_text(page.file("/etc/haproxy/haproxy.cfg"))
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        haproxy = start(stack, [*as_user(None, "TERM"), program, "-db", "-f", config], config.with_suffix(".log"))
        stack.callback(haproxy.terminate)

    def primary(self):
        """The node whose Patroni holds the leader key."""
        return next((node for node in self.all if node.agrees("primary")), None)

    def standby(self):
        """The synchronous standby."""
        return next((node for node in self.all if node.agrees("synchronous")), None)

    def are_whole(self):
        """Whether there are a primary, behind haproxy, its synchronous standby and another standby."""
        for node in self.all:
            node.check()
        # The backup of which a node is made streams too, with another name.
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name ~ '^pg.$'"
        with contextlib.suppress(LabTrouble):
            return self.standby() and self.proxy.query("postgres", streaming) == str(len(self.all) - 1)

    def control(self, *words):
        """Runs patronictl."""
        done(python_tools(PINS) / "patronictl", "-c", self.all[0].config, *words)
