"""The programs that a run needs: found, or built."""

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass

from processes import Trouble, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "benches" / "peers"
PEERS_TARGET = ROOT / "target" / "peers"
NODE_PEER = PEERS / "node"


@dataclass
class Programs:
    """Where each is. `postgres` is the folder of PostgreSQL's programs."""

    perdiem: str
    postgres: str
    load: str
    limitador: str
    lone: str
    nothing: str


def find_programs(binary=None, built_peers=None):
    """Builds perdiem, unless a binary is named, and what it is measured with and against, unless
    a folder of that is."""
    run([ROOT / "scripts" / "install-test-tools", "--bench"])
    needed = ["redis-server", "redis-cli", "redis-benchmark", "setpriv", "findmnt", "cargo"]
    missing = [name for name in [*needed, "node", "npm"] if not shutil.which(name)]
    postgres = postgres_folder()
    if not postgres:
        missing.insert(0, "postgres")
    if missing:
        raise Trouble(f"missing: {', '.join(missing)}")
    if built_peers:
        names = ("load", "limitador-server", "lone", "nothing-server")
        peers = {name: os.path.join(os.path.abspath(built_peers), name) for name in names}
    else:
        lacking = build_lacking_crate()
        peers = build(PEERS, PEERS_TARGET, RUSTFLAGS=f"--extern bin={lacking}")
    install_node_peer()
    perdiem = binary or build(ROOT, ROOT / "target")["perdiem"]
    return Programs(
        perdiem,
        postgres,
        peers["load"],
        peers["limitador-server"],
        peers["lone"],
        peers["nothing-server"],
    )


def build_lacking_crate():
    """limitador 0.14 without its storage on disk, and so without RocksDB, lacks a module of its
    own named `bin`, by which no limit without an id goes. A crate of that name stands in."""
    library = PEERS_TARGET / "dist" / "deps" / "libbin.rlib"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = PEERS / "lacking" / "bin.rs"
    run(["rustc", "--crate-type=rlib", "--edition=2024", "-O", "-o", library, source])
    return library


def build(package, target, **variables):
    """Builds a package as it is deployed. Returns its programs by name."""
    command = ["cargo", "build", "--profile=dist", "--locked"]
    command += ["--message-format=json-render-diagnostics"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)} | variables
    built = subprocess.run(
        command, cwd=package, env=environment, stdout=subprocess.PIPE, text=True
    )
    if built.returncode != 0:
        raise Trouble(f"{package.relative_to(ROOT.parent)} could not be built")
    paths = (json.loads(line).get("executable") for line in built.stdout.splitlines())
    return {os.path.basename(path): path for path in paths if path}


def install_node_peer():
    """What package-lock.json names, unless it is there already."""
    lock = NODE_PEER / "package-lock.json"
    installed = NODE_PEER / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run(["npm", "ci", "--no-audit", "--no-fund"], cwd=NODE_PEER)
        installed.touch()


def postgres_folder():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=version_of)
    program = found[-1] if found else shutil.which("postgres")
    return os.environ.get("PERDIEM_POSTGRES_BIN") or (program and os.path.dirname(program))


def version_of(path):
    return int(re.search(r"/(\d+)[^/]*/bin/", path)[1])
