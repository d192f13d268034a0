"""CPU time and memory of another process, from the kernel."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import msgspec


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads, user and system, with nanosecond resolution."""
    # The value of clock_getcpuclockid(3) on Linux. Python exposes it only for threads.
    return time.clock_gettime(~pid << 3 | 2)


def peak_mebibytes(pid: int) -> float:
    """Return the peak resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


class Memory(msgspec.Struct, frozen=True):
    """Memory of a process in MiB."""

    resident: float
    """RSS."""
    proportional: float
    """PSS: shared pages are counted proportionally."""

    def __str__(self) -> str:
        return f"{self.resident:.1f} ({self.proportional:.1f}) MiB"


def memory(pid: int) -> Memory:
    """Return the current memory."""
    sizes = {
        name: int(rest.split()[0]) / 1024
        for name, _, rest in (
            line.partition(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        )
    }
    return Memory(resident=sizes["Rss"], proportional=sizes["Pss"])


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as the system permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
