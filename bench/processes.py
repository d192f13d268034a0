"""What the kernel counts of another process."""

from __future__ import annotations

import time
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """The CPU time that it has spent, its own and on its behalf, in all of its threads: to the nanosecond."""
    # What clock_getcpuclockid(3) returns on Linux; Python has a name for it only for threads.
    return time.clock_gettime(~pid << 3 | 2)


def peak_mebibytes(pid: int) -> float:
    """The most memory that it has had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
