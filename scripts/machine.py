"""A copy of this machine that runs: this machine's files, and systemd with nothing else.

The copy shares the kernel and nothing else: it has an overlay in memory over this machine's files, and
processes, network and groups of its own. So a check can install packages and start services as on a real machine,
and all of it ends with the check. It needs root.
"""

import contextlib
import ctypes
import pathlib
import signal
import subprocess
import tempfile
import time

from checking import Trouble

STEP_DEADLINE_SECONDS = 300
UP_DEADLINE_SECONDS = 60
# From sched.h.
CLONE_NEWNS = 0x00020000
# These would change the kernel.
OF_THE_KERNEL = [
    "dev-hugepages.mount",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-binfmt.service",
    "systemd-modules-load.service",
    "systemd-sysctl.service",
    "systemd-udev-trigger.service",
    "systemd-udevd.service",
]
# systemd gets a root and not a chroot, because PrivateUsers= does not work below a chroot.
BOOT = """
cd "$1"
mount -t proc proc proc
mount --bind -o ro proc/sys proc/sys
mount -t sysfs -o ro sysfs sys
{groups}
mkdir -p oldroot
pivot_root . oldroot
umount --lazy /oldroot
exec chroot . env -i container=perdiem PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=basic.target
"""


def run(*command, **more):
    """Runs a command. Returns what it printed."""
    command = [str(word) for word in command]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=STEP_DEADLINE_SECONDS, **more
    )
    if done.returncode != 0:
        raise Trouble(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def own_mounts():
    """From now on this script's mounts are its own: nobody else sees them, and they end with it."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        raise Trouble("run this as root: it installs packages on a copy of this machine")
    run("mount", "--make-rprivate", "/")


class Machine:
    """`files` is the root of the copy, and `init` the process of its systemd."""

    def __init__(self, files, init):
        self.files = files
        self.init = init

    def run(self, *command, **variables):
        """Runs a command on the copy, as root. Returns what it printed."""
        variables |= {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin", "LC_ALL": "C.UTF-8"}
        variables |= {"DEBIAN_FRONTEND": "noninteractive"}
        return run("nsenter", "--target", self.init, "--all", "--root", "--wd", *command, env=variables)


@contextlib.contextmanager
def machine(folder):
    """A copy of this machine whose systemd is up. `folder` gets the log."""
    with overlay() as files:
        # A machine that must start no services has this file.
        (files / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        for unit in OF_THE_KERNEL:
            place = files / "etc/systemd/system" / unit
            place.unlink(missing_ok=True)
            place.symlink_to("/dev/null")
        # systemd makes its groups below one that this script makes and removes.
        groups = [pathlib.Path(place) / files.parent.name for place, _ in hierarchies()]
        process = None
        try:
            for group in groups:
                group.mkdir()
            process = boot(files, groups, folder / "systemd.log")
            yield wait_until_up(files, process, folder / "systemd.log")
        finally:
            if process:
                process.send_signal(signal.SIGKILL)
                process.wait()
            remove(groups)


@contextlib.contextmanager
def overlay():
    """A folder with this machine's files. What is written in it is in memory, and gone at its end."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="perdiem-machine-"))
    try:
        run("mount", "-t", "tmpfs", "perdiem", place)
        files, written, work = place / "files", place / "written", place / "work"
        for folder in [files, written, work]:
            folder.mkdir()
        run("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={written},workdir={work}", "overlay", files)
        run("mount", "-t", "tmpfs", "run", files / "run")
        for device in ["null", "zero", "full", "random", "urandom", "tty"]:
            (files / "dev" / device).touch()
            run("mount", "--bind", f"/dev/{device}", files / "dev" / device)
        yield files
    finally:
        # Nothing here deletes a tree: below this folder are the machine's own files.
        subprocess.run(["umount", "--recursive", "--lazy", place])
        place.rmdir()


def hierarchies():
    """The groups of processes (cgroups) that systemd uses: version 2, and of version 1 its own. Each with its
    place and how it is mounted."""
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.append((place, "-t cgroup2"))
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            found.append((place, "-t cgroup -o none,name=systemd,xattr"))
    if not found:
        raise Trouble("systemd needs cgroups, and this machine has mounted none")
    return found


def boot(files, groups, log):
    # Version 2 alone is the folder itself; else the folder has one for each hierarchy.
    is_one = any(place == "/sys/fs/cgroup" for place, _ in hierarchies())
    mounts = [] if is_one else ["mount -t tmpfs cgroup sys/fs/cgroup"]
    for place, how in hierarchies():
        mounts += [f"mkdir -p .{place}", f"mount {how} cgroup .{place}"]
    # It enters its groups first, so that they are the roots in its namespace. It ends with this script.
    enter = [f"echo $$ >{group}/cgroup.procs" for group in groups]
    enter += ['exec unshare --pid --mount --uts --ipc --net --cgroup --fork --kill-child sh -euc "$0" sh "$1"']
    command = ["setpriv", "--pdeathsig", "KILL", "sh", "-euc", "\n".join(enter)]
    command += [BOOT.format(groups="\n".join(mounts)), files]
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def wait_until_up(files, process, log):
    deadline = time.monotonic() + UP_DEADLINE_SECONDS
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < deadline and process.poll() is None:
        for init in children.read_text().split():
            copy = Machine(files, init)
            with contextlib.suppress(Trouble):
                copy.run("systemctl", "is-active", "basic.target")
                return copy
        time.sleep(0.2)
    raise Trouble(f"systemd did not start on the copy of this machine:\n{log.read_text()}")


def remove(groups):
    """Removes groups whose processes have been killed."""
    deadline = time.monotonic() + UP_DEADLINE_SECONDS
    while left := [group for group in groups if group.exists()]:
        if time.monotonic() > deadline:
            raise Trouble(f"processes stay in {left}")
        for group in left:
            subprocess.run(["find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], capture_output=True)
        time.sleep(0.1)
