"""A server that tests start and stop: on loopback, with a log file, in its own session."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

LOOPBACK = "127.0.0.1"
PING_TIMEOUT = timedelta(seconds=5)

_START_TIMEOUT = timedelta(seconds=180)
"""A cold machine with two busy cores needs half a minute, and one with a slow disk more."""
_STOP_TIMEOUT = timedelta(seconds=30)
_MIN_PORT = 10_000
_LOG_TAIL_LINES = 25


class ServiceError(Exception):
    """A service cannot be provided. The message says why and what to do."""


class ServiceMissing(ServiceError):
    """A service is not installed, and we do not install it."""


class NotListening(Exception):
    """Nothing accepts connections at an address."""


def log_progress(text: str) -> None:
    print(f"services: {text}", file=sys.stderr, flush=True)


def run_command(
    name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run an administrative command and return its output. Raises `ServiceError`, which starts with `name`."""
    done = subprocess.run(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_START_TIMEOUT.total_seconds(),
        check=False,
    )
    if done.returncode != 0:
        raise ServiceError(f"{name}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@contextmanager
def environment_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable, which the command inherits, and remove it afterwards."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def free_port() -> int:
    """Return an unused loopback port outside the range of outgoing connections.

    A service that restarts must find its port free. A port from the outgoing range may be taken by then, even by a
    client that tries to reach the service: such a client ends up connected to itself.
    """
    for _ in range(1000):
        port = _MIN_PORT + secrets.randbelow(_first_outgoing_port() - _MIN_PORT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise ServiceError("no port is free")


def _first_outgoing_port() -> int:
    port_range = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(port_range.read_text().split()[0]) if port_range.exists() else 32768
    # If the range starts too low to leave room below it, use any port.
    return first if first > _MIN_PORT + 1000 else 65536


class ServerProcess(ABC):
    """Runs one server process while its context is entered. Everything it writes is inside `directory`.

    It can be stopped or killed and started again on the same data.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, port: int, directory: Path) -> None:
        self.port = port
        self._directory = directory
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and return when it is ready."""
        with self._log.open("ab") as log:
            # Its own session: Ctrl-C is meant for the command, which may still need the server to finish.
            process = self._process = subprocess.Popen(
                self._command(),
                env=self._environment(),
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_TIMEOUT.total_seconds()
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServiceError(f"{self.name} exited while starting:\n{self._log_tail()}")
            if self._is_ready():
                return
            time.sleep(0.1)
        raise ServiceError(
            f"{self.name} is not ready on port {self.port} after {_START_TIMEOUT}:\n{self._log_tail()}"
        )

    def stop(self) -> None:
        """Shut the server down in order. Does nothing if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(self.stop_signal)
        try:
            process.wait(_STOP_TIMEOUT.total_seconds())
        except subprocess.TimeoutExpired:
            log_progress(f"{self.name} on port {self.port} does not stop, killing it")
        kill_session(process)

    def kill(self) -> None:
        """Kill the server, as a power cut would. Does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            kill_session(process)

    def close(self) -> None:
        """Stop everything that was started."""
        self.stop()

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server accepts clients."""

    def _prepare(self) -> None:  # noqa: B027  # not every server needs it
        """Write what the first start needs."""

    def _environment(self) -> Mapping[str, str] | None:
        """The server's environment; None for ours."""
        return None

    def _log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session, and all its children."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
