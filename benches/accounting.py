"""What the operating system accounts: CPU time by process, memory, other load."""

import contextlib
import os
import pathlib
import re

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """The CPU time of a process, its children, and those of them that have ended."""
    user, system, ended_user, ended_system = stat_fields(pid)[10:14]
    total = user + system + ended_user + ended_system
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # One that ends meanwhile is counted with those that have ended, next time.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += sum(stat_fields(child)[10:12])
    return total / TICKS_PER_SECOND


def stat_fields(pid):
    """The numbers of /proc/PID/stat, from the parent's id on."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    _state, *numbers = text.rsplit(")", 1)[1].split()
    return [int(number) for number in numbers]


def machine_cpu_seconds():
    """The CPU time of all processes of this machine together."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, interrupts, soft_interrupts = map(int, fields[:7])
    return (user + nice + system + interrupts + soft_interrupts) / TICKS_PER_SECOND


def resident_mib(pid):
    """How much memory a process holds just now."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


class Meter:
    """CPU time from its making on: by process, of the load generators, of the whole machine."""

    def __init__(self, processes):
        self.processes = processes
        self.before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        self.machine = machine_cpu_seconds()

    def read(self, generator_seconds):
        """Seconds by process, and those that the machine spent on all else."""
        machine = machine_cpu_seconds() - self.machine
        cpu = {name: cpu_seconds(pid) - self.before[name] for name, pid in self.processes.items()}
        cpu["load generator"] = generator_seconds
        return cpu, max(0.0, machine - sum(cpu.values()))


def children_cpu_seconds():
    """The CPU time of our own children that have ended: the load generators."""
    times = os.times()
    return times.children_user + times.children_system
