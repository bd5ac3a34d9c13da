"""Processes that this run starts, and ends again by their ids, also when it is interrupted."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

START_DEADLINE_SECONDS = 30
END_DEADLINE_SECONDS = 30


class Trouble(Exception):
    """Something that the user must hear of."""


def run(command, **options):
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise Trouble(f"{words} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def as_user(user=None):
    """The start of a command line that drops to a user, and dies with this script."""
    prefix = ["setpriv", "--pdeathsig=INT"]
    if user:
        prefix += [f"--reuid={user}", f"--regid={user}", "--init-groups"]
    return prefix + ["--"]


@contextlib.contextmanager
def running(command, log, **options):
    """A process in a session of its own, ended by its id."""
    with open(log, "ab") as output:
        options.setdefault("stdout", output)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
            **options,
        )
    try:
        yield process
    finally:
        end(process)


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(END_DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def folder(user=None):
    """A temporary folder, a user's own."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="perdiem-bench-"))
    try:
        if user:
            shutil.chown(path, user, user)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(is_ready, process, log):
    deadline = time.monotonic() + START_DEADLINE_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Trouble(f"{process.args[-1]} did not start:\n{log.read_text()}")
        time.sleep(0.05)


def environment_without(prefixes):
    """Ours, without the variables that begin so."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(tuple(prefixes))
    }
