"""What the kernel counts of another process."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec


def cpu_seconds(pid: int) -> float:
    """The CPU time that it has spent, its own and on its behalf, in all of its threads: to the nanosecond."""
    # What clock_getcpuclockid(3) returns on Linux; Python has a name for it only for threads.
    return time.clock_gettime(~pid << 3 | 2)


def peak_mebibytes(pid: int) -> float:
    """The most memory that it has had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


class Memory(msgspec.Struct, frozen=True):
    """What a process has resident, in MiB."""

    resident: float
    """All of it: RSS."""
    proportional: float
    """The same, with its share of what it has in common with other processes: PSS."""

    def __str__(self) -> str:
        return f"{self.resident:.1f} ({self.proportional:.1f}) MiB"


def memory(pid: int) -> Memory:
    """What it has resident now."""
    sizes = {
        name: int(rest.split()[0]) / 1024
        for name, _, rest in (
            line.partition(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        )
    }
    return Memory(resident=sizes["Rss"], proportional=sizes["Pss"])
