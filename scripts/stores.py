"""PostgreSQL, Redis and other servers for checks: each on a free port of 127.0.0.1, with its files in a folder."""

import contextlib
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import time

from checking import START_DEADLINE_SECONDS, Trouble, end

INSTALL = "run scripts/install-test-tools"
# Another process may take a port that was free a moment ago.
PORTS_TRIED = 5


def program(name):
    """The path of a program. Debian keeps those of PostgreSQL beside each other, by version."""
    own = os.environ.get("PERDIEM_POSTGRES_BIN", "/nowhere")
    versions = pathlib.Path("/usr/lib/postgresql").glob("*/bin")
    newest = sorted(versions, key=lambda place: int(re.sub(r"\D", "", place.parent.name) or 0), reverse=True)
    path = os.pathsep.join([own, *map(str, newest), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    if found is None:
        raise Trouble(f"{name} is missing: {INSTALL}")
    return found


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def listening(command_on, log, is_ready, **more):
    """Runs a server on a free port. `command_on` gets the port and returns the command. Yields the port and the
    process, which has ended afterwards."""
    for _ in range(PORTS_TRIED):
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command_on(port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **more,
            )
        try:
            deadline = time.monotonic() + START_DEADLINE_SECONDS
            while process.poll() is None and not (ready := is_ready(port)) and time.monotonic() < deadline:
                time.sleep(0.05)
            if process.poll() is None and ready:
                yield port, process
                return
        finally:
            end(process)
    raise Trouble(f"{command_on(port)[0]} did not start:\n{log.read_text(errors='replace')}")


def accepts(port):
    """Whether somebody listens on a port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def postgres(folder):
    """Runs a PostgreSQL without passwords. Yields the URL of its empty database `perdiem`. PostgreSQL refuses to run
    as root, so its user gets the folder."""
    data = folder / "postgres"
    data.mkdir()
    user = {}
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(data, owner.pw_uid, owner.pw_gid)
        # The folder of a temporary file is its owner's alone.
        folder.chmod(0o711)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": [], "cwd": data}
    make = [program("initdb"), "-D", data / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    run_quietly([*make, "--no-sync", "--no-instructions"], **user)

    def command_on(port):
        given = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", f"port={port}"]
        # Not in /dev/shm, where a killed cluster would leave it.
        given.append("dynamic_shared_memory_type=mmap")
        return [program("postgres"), "-D", data / "data", *(word for value in given for word in ("-c", value))]

    def is_ready(port):
        ask = [program("pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
        return subprocess.run(ask).returncode == 0

    with listening(command_on, folder / "postgres.log", is_ready, **user) as (port, _):
        server = f"postgres://postgres@127.0.0.1:{port}"
        run_quietly(psql(f"{server}/postgres", "CREATE DATABASE perdiem"))
        yield f"{server}/perdiem"


@contextlib.contextmanager
def redis(folder):
    """Runs a Redis that keeps nothing on disk. Yields its port."""

    def command_on(port):
        own = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        return [program("redis-server"), *own, "--port", str(port)]

    with listening(command_on, folder / "redis.log", accepts, cwd=folder) as (port, _):
        yield port


def psql(url, *statements):
    """The command that runs statements. Without statements psql reads them from its standard input."""
    asked = [word for statement in statements for word in ("--command", statement)]
    return [program("psql"), "--no-psqlrc", "--quiet", "--tuples-only", "--set=ON_ERROR_STOP=1", *asked, url]


def run_quietly(command, **more):
    """Runs a command, and shows what it printed if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise Trouble(f"{command[0]} failed:\n{done.stdout}")
    return done.stdout
