"""What the checks share that start programs: a perdiem of its own, its end, and its day.

A check reports what it finds as a `Trouble`. A program that a check starts leads its own process
group, so that its end is also the end of its children.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The benches start the servers that the checks need too: see lab.py there.
sys.path.insert(0, str(ROOT / "benches"))
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
BUILD_DEADLINE_SECONDS = 3600
START_DEADLINE_SECONDS = 60
# A step of a check, such as the tests of a client.
STEP_DEADLINE_SECONDS = 600
END_DEADLINE_SECONDS = 30
NPM_INSTALL = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
# The day of the documents' policies ends at midnight in GMT+8, which is 16:00 UTC. A run that
# begins less than this before it waits until it is over.
DAY_SECONDS = 24 * 60 * 60
DAY_ENDS_AT_SECONDS = 16 * 60 * 60
NEAR_MIDNIGHT_SECONDS = 120


class Trouble(Exception):
    """A failure, in words."""


def end_with_this_script():
    """SIGTERM ends this script, and then also the programs that it started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def end(process):
    """Ends a process and its children. Returns its exit code."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, kind)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_DEADLINE_SECONDS)
    return process.returncode


def settings(**more):
    """The environment without the settings of perdiem, and with more variables."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERDIEM_", "DATABASE_URL", "REDIS_"))
    }
    return kept | more


def run(command, cwd, **variables):
    """Runs a step of a check, and its children only as long as it."""
    process = subprocess.Popen(command, cwd=cwd, env=settings(**variables), start_new_session=True)
    try:
        code = process.wait(STEP_DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Trouble(f"not done in {STEP_DEADLINE_SECONDS} s: {' '.join(map(str, command))}") from None
    finally:
        end(process)
    if code != 0:
        raise Trouble(f"failed: {' '.join(map(str, command))}")


def browser_tools(folder):
    """Puts the programs of tests/browser with their packages into a folder. Returns the path of Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((found for name in names if (found := shutil.which(name))), None)
    if chromium is None or shutil.which("npm") is None:
        raise Trouble("Chromium or npm is missing: run scripts/install-test-tools")
    shutil.copytree(ROOT / "tests" / "browser", folder, dirs_exist_ok=True)
    run(NPM_INSTALL, folder)
    return chromium


def build():
    """Builds the program that the tests use. Returns its path."""
    # As scripts/test selects it: for another selection cargo compiles most crates again, with other features.
    command = ["cargo", "test", "--locked", "--features", "faults", "--tests", "--no-run"]
    # The build shows its progress.
    if subprocess.run(command, cwd=ROOT, timeout=BUILD_DEADLINE_SECONDS).returncode != 0:
        raise Trouble("perdiem does not compile")
    return TARGET / "debug" / "perdiem"


def python_tools(pins):
    """Returns the programs' folder of a virtual environment with the packages of a file. Makes it if it is
    missing."""
    name = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = TARGET / "python-tools" / name
    programs, done = place / "bin", place / "installed"
    if not done.exists():
        venv.create(place, clear=True, with_pip=True)
        command = [programs / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        if subprocess.run([*command, "install", "--requirement", pins]).returncode != 0:
            raise Trouble(f"pip cannot install what {pins} names")
        done.touch()
    return programs


@contextlib.contextmanager
def running(command, log, **more):
    """Runs a command that becomes a perdiem, with its output in a file. Yields its URL and its process,
    which has ended afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **more,
        )
    try:
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        while not (found := re.search(r"listens on (http://\S+)", log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"perdiem did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield found[1], process
        if process.poll() is not None:
            raise Trouble(f"perdiem ended by itself:\n{log.read_text()}")
    finally:
        end(process)
    if " panicked at " in log.read_text():
        raise Trouble(f"perdiem panicked:\n{log.read_text()}")


@contextlib.contextmanager
def server(perdiem, folder, name, port=0, **more):
    """Runs a perdiem on SQLite, on a free port, with more settings. Yields its URL and an admin's key."""
    key = secrets.token_hex(24)
    variables = settings(PERDIEM_ADMIN_KEY=key, DATABASE_URL=f"sqlite:{folder / name}.db", **more)
    command = [perdiem, "serve", "--bind", f"127.0.0.1:{port}"]
    with running(command, folder / f"{name}.log", env=variables) as (url, _):
        yield url, key


def stay_clear_of_midnight():
    """Waits if the day of the documents' policies is about to end."""
    left = (DAY_ENDS_AT_SECONDS - time.time()) % DAY_SECONDS
    if left < NEAR_MIDNIGHT_SECONDS:
        print(f"midnight in GMT+8 is near: waiting for {left:.0f} s", flush=True)
        time.sleep(left + 1)
