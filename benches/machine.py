"""The facts of the machine that a run was made on."""

import os
import pathlib
import platform
import re
import statistics
import tempfile
import time

from processes import run
from programs import NODE_PEER, PEERS, ROOT

WRITTEN = ["docs/benchmarks.md", "docs/benchmarks.json", "docs/benchmarks.svg"]


def machine_facts(programs):
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    filesystem = run(["findmnt", "-n", "-o", "FSTYPE", "-T", tempfile.gettempdir()])
    return {
        "cores": os.cpu_count(),
        "cpu": model[1] if model else platform.machine(),
        "memory_gib": round(memory_mib() / 1024, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": filesystem.strip(),
        "sync_us": round(sync_microseconds()),
        "postgresql": run([f"{programs.postgres}/postgres", "--version"]).split()[2],
        "redis": re.search(r"v=(\S+)", run(["redis-server", "--version"]))[1],
        "node": run(["node", "--version"]).strip().removeprefix("v"),
        "limitador": locked_version("limitador"),
        "rate_limiter_flexible": node_version("rate-limiter-flexible"),
        "rustc": run(["rustc", "--version"]).split()[1],
        "perdiem": commit(),
    }


def memory_mib():
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]
    return int(memory) // 1024


def sync_microseconds():
    """How long one page takes to the disk, in the median."""
    times = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(200):
            begin = time.perf_counter()
            os.pwrite(file.fileno(), bytes(8192), 0)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def locked_version(crate):
    lock = (PEERS / "Cargo.lock").read_text()
    return re.search(rf'name = "{crate}"\nversion = "([^"]+)"', lock)[1]


def node_version(package):
    return re.search(rf'"{package}": "([^"]+)"', (NODE_PEER / "package.json").read_text())[1]


def commit():
    git = ["git", "-C", ROOT]
    name = run([*git, "rev-parse", "--short", "HEAD"]).strip()
    ours = ["--", *(f":!{path}" for path in WRITTEN)]
    is_changed = run([*git, "status", "--porcelain", *ours]).strip()
    return f"{name}, with changes" if is_changed else name
