"""A service in its own process, for tests with real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys


class PythonProgram:
    """A Python program that prints lines and logs JSON. It is killed at the end of the context."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> PythonProgram:
        return self

    def __exit__(self, *details: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read_line(self) -> str:
        """Return the next printed line. The test's timeout bounds the wait."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, list[str]]:
        """Wait for the exit. Returns the exit code and the logged events."""
        _, log = self._process.communicate(timeout=20)
        return self._process.returncode, [json.loads(line)["event"] for line in log.splitlines()]
