"""A child process as a part of a service.

    proxy = ChildProcess(name="proxy", argv=["proxy", "-c", "proxy.kdl"], log=log, redact=redactor.redact)
    runner.run(parts=[proxy.part, ...], ...)

The child starts and restarts with its part: an unexpected exit is the part's failure, whose message ends with the
last line that the child wrote to stderr. Its output goes to our log.
When the part stops, the child gets SIGTERM and has the drain timeout to exit. Then its whole process group gets
SIGKILL, as does the rest of the group after the child has exited.

If our process is killed with SIGKILL, Linux kills the child with it (`exec_with_parent`). This does not reach
grandchildren, nor a child that is setuid or has file capabilities. Other systems have no equivalent.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from sentinel.runtime.lifecycle.child_output import OutputLines
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import Log
from sentinel.runtime.log_format import describe

_WRAPPER = Path(__file__).with_name("exec_with_parent.py")
_STREAMS = {1: "stdout", 2: "stderr"}
_OUTPUT_TIMEOUT = timedelta(seconds=1)
"""How long to wait for the last output of an exited child. A process that it started may hold the pipe open."""
_READINESS_INTERVAL = timedelta(milliseconds=100)
_READINESS_TIMEOUT = timedelta(seconds=5)

ReadinessProbe: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns why a child is not ready yet, or None."""


class ChildExited(Exception):
    """A child process exited without being asked to stop."""


class ChildProcess:
    """A child process. Each start of its part spawns a new one."""

    def __init__(
        self,
        *,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: ReadinessProbe | None = None,
        may_end: bool = False,
        log: Log,
        redact: Callable[[str], str],
    ) -> None:
        """`argv[0]` is looked up in the child's PATH. The default `environment` is ours.

        The part is not ready until `ready` has returned None. An exception counts as not ready. Without `ready`,
        the part is ready when the child has been spawned. A child that `may_end` and exits with code 0 was done,
        and is not spawned again.
        """
        self._name = name
        self._argv = argv
        self._environment = os.environ if environment is None else environment
        self._cwd = cwd
        self._ready = ready
        self._may_end = may_end
        self._last_line = ""
        self._log = log.bind(name=name)
        self._redact = redact
        self._child: _Child | None = None
        self._problem: str | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None if the child does not run."""
        return None if self._child is None or self._child.exited.is_set() else self._child.pid

    def send_signal(self, number: signal.Signals) -> bool:
        """Send a signal to the child alone. Returns False if it does not run."""
        return self._child is not None and self._child.send(number)

    def part(self) -> Part:
        """Return the part. A part factory: called again when the child has to be restarted."""
        part = Part(name=self._name, loops=(self._watch,), start=self._spawn, close=self._close)
        if self._ready is None:
            return part
        loops = (self._watch, partial(self._probe, self._ready))
        return msgspec.structs.replace(part, loops=loops, checks={"process": lambda: self._problem})

    async def _spawn(self) -> None:
        executable = _find(self._argv[0], search=self._environment.get("PATH", os.defpath), cwd=self._cwd)
        self._problem, self._last_line = "starting", ""
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Protocol(emit=self._forward, redact=self._redact),
            *_with_parent_death_signal(executable, self._argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            cwd=self._cwd,
            start_new_session=True,  # a process group to kill, and no Ctrl-C from our terminal
        )
        self._child = _Child(transport, protocol)
        self._log.info("child.started", pid=self._child.pid)

    async def _watch(self, stopping: Stopping) -> None:
        child = self._running()
        try:
            if not await stopping.interrupts(child.exited.wait()):
                child.kill_group()
                await child.drain_output()
                if self._may_end and child.has_succeeded:
                    self._problem = None
                    self._log.info("child.ended")
                    await stopping.wait()
                    return
                said = f": {self._last_line}" if self._last_line else ""
                raise ChildExited(f"{self._name} {child.status()} although it was not asked to stop{said}")
            child.send(signal.SIGTERM)
            await child.exited.wait()
        except asyncio.CancelledError:
            child.kill_group()  # now, because other parts may be closed before this one
            raise
        self._log.info("child.stopped", status=child.status())

    async def _probe(self, ready: ReadinessProbe, stopping: Stopping) -> None:
        if not await stopping.interrupts(self._wait_until_ready(ready)):
            await stopping.wait()

    async def _wait_until_ready(self, ready: ReadinessProbe) -> None:
        child = self._running()
        while not child.exited.is_set():
            try:
                async with asyncio.timeout(_READINESS_TIMEOUT.total_seconds()):
                    problem = await ready()
            except Exception as error:
                problem = describe(error)
            if problem is None:
                self._problem = None
                self._log.info("child.ready")
                return
            self._problem = f"starting: {problem}"
            await asyncio.sleep(_READINESS_INTERVAL.total_seconds())

    async def _close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill_group()
        try:
            await child.drain_output()
        finally:
            child.close()

    def _running(self) -> _Child:
        if self._child is None:
            raise RuntimeError(f"expected {self._name} to have been spawned before its loops run")
        return self._child

    def _forward(self, stream: str, line: str) -> None:
        if stream == "stderr":
            self._last_line = line
        self._log.info("child.output", stream=stream, line=line)


class _Protocol(asyncio.SubprocessProtocol):
    """Forwards output line by line.

    Unlike a stream reader, it is notified of the exit even if a process that the child started holds the pipes
    open.
    """

    def __init__(self, *, emit: Callable[[str, str], None], redact: Callable[[str], str]) -> None:
        self.exited = asyncio.Event()
        self.ended = asyncio.Event()
        """Set when the child has exited and its output has been read to the end."""
        self._lines = {fd: OutputLines(partial(emit, stream), redact=redact) for fd, stream in _STREAMS.items()}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._lines[fd].feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._lines[fd].end()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


class _Child:
    """One spawned process."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self.pid = transport.get_pid()
        self.exited = protocol.exited
        self._ended = protocol.ended
        self._transport = transport

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the child alone. Returns False if it has exited."""
        # Not through the transport: before Python 3.13 it polls, and may steal the exit code from the loop.
        with suppress(ProcessLookupError):
            if self._transport.get_returncode() is None:
                os.kill(self.pid, number)
                return True
        return False

    def kill_group(self) -> None:
        """Kill the child and its process group, even if the child has exited.

        The kernel does not reuse the process id while the group has members. If it has none, the id could name
        another group by now, but the kernel cycles through all ids first, and this is called right after the exit.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def drain_output(self) -> None:
        """Wait until all output of an exited child has been forwarded, at most for a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OUTPUT_TIMEOUT.total_seconds()):
                await self._ended.wait()

    def close(self) -> None:
        """Close the pipes."""
        self._transport.close()

    @property
    def has_succeeded(self) -> bool:
        """Whether it has exited with code 0."""
        return self._transport.get_returncode() == 0

    def status(self) -> str:
        """Describe how the process ended."""
        code = self._transport.get_returncode()
        if code is None:
            return "runs"
        if code >= 0:
            return f"exited with code {code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"was killed by {names.get(-code, f'signal {-code}')}"


def _find(program: str, *, search: str, cwd: Path | None) -> str:
    """Return the program's absolute path. The wrapper could report a missing program only by exiting."""
    if os.sep in program:
        path = Path(cwd or Path.cwd(), program).absolute()
        found = str(path) if path.is_file() and os.access(path, os.X_OK) else None
    else:
        found = shutil.which(program, path=search)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "expected a program that can be run, found none", program)
    return str(Path(found).absolute())


def _with_parent_death_signal(executable: str, argv: Sequence[str]) -> Sequence[str]:
    if sys.platform != "linux" or not sys.executable:
        return (executable, *argv[1:])
    return (sys.executable, "-I", "-S", str(_WRAPPER), str(os.getpid()), executable, *argv)
