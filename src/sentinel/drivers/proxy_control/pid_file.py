"""Finds the proxy's process by its pid file, and is not fooled by a file that is left over.

A pid may belong to another process by now. The process that wrote the file began before it did, so one that began
later is not the proxy.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from sentinel.ports.proxy_control import ProxyFailure

_TOLERANCE: Final = timedelta(seconds=2)
"""Between the clock of the file system and that of processes."""
_MAX_BYTES: Final = 64
_PID = re.compile(rb"\s*([1-9][0-9]{0,9})\s*")


class PidFile:
    """The pid file of a proxy, which the proxy writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process_id(self) -> int:
        """Return the id of the proxy's process. Raises `ProxyFailure` if it does not run."""
        try:
            with self.path.open("rb") as file:
                text = file.read(_MAX_BYTES)
                written = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            raise ProxyFailure(f"the proxy does not run: there is no {self.path}") from None
        except OSError as error:
            raise ProxyFailure(f"{self.path}: {(error.strerror or str(error)).lower()}") from error
        found = _PID.fullmatch(text)
        pid = 0 if found is None else int(found[1])
        if pid <= 1 or pid == os.getpid():
            raise ProxyFailure(f"{self.path}: expected the id of the proxy's process")
        try:
            os.kill(pid, 0)
        except PermissionError:
            pass  # it runs as another user; sending a signal fails then, and says so
        except OSError:
            raise ProxyFailure(f"the proxy does not run: {self.path} names {pid}, which has ended") from None
        started = _started(pid)
        if started is not None and started > written + _TOLERANCE.total_seconds():
            raise ProxyFailure(f"the proxy does not run: {self.path} names {pid}, which began later")
        return pid

    def send(self, number: signal.Signals) -> int:
        """Send a signal to the proxy and return its id. Raises `ProxyFailure`."""
        pid = self.process_id()
        try:
            os.kill(pid, number)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ProxyFailure(f"process {pid}: cannot get {number.name}: {reason}") from error
        return pid


def _started(pid: int) -> float | None:
    """Return when a process began, in Unix seconds; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError, StopIteration):
        # The name may contain spaces and parentheses. Field 22 is the start, in ticks since the system started.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        system_started = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return system_started + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return None


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its parent has not noticed."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False
