"""A child process is a part: it starts, fails, restarts and stops like any other, and never outlives the service.

These tests start real processes. Each holds a connection while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.child_process import ChildProcess
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secrets import Redactor

TIMEOUT = 20
IMMEDIATELY = Backoff(initial=timedelta(0), maximum=timedelta(0))
LOG = get_logger("child-test")

HOLD = """
import os, signal, socket, subprocess, sys, time
def hold():
    held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    held.sendall(b"%d\\n" % os.getpid())
    return held
"""
"""The start of a child's program. It connects and sends its process id."""
WAIT = f"{HOLD}held = hold()\nprint('ready', flush=True)\ntime.sleep(600)\n"
IGNORE = f"{HOLD}signal.signal(signal.SIGTERM, signal.SIG_IGN)\nheld = hold()\ntime.sleep(600)\n"
SPAWN = f"""
{HOLD}
subprocess.Popen([sys.executable, "-c", {IGNORE!r}, sys.argv[1]])
held = hold()
time.sleep(600)
"""


class Events(logging.Handler):
    """The log records of the child's part."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []
        self._changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append({"event": record.msg, **getattr(record, "fields", {})})
        self._changed.set()

    def lines(self, stream: str = "stdout") -> list[str]:
        return [record["line"] for record in self.records if record.get("stream") == stream]

    def count(self, event: str) -> int:
        return sum(record["event"] == event for record in self.records)

    async def wait_until(self, is_reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not is_reached():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def events() -> Iterator[Events]:
    logger = logging.getLogger("sentinel.child-test")
    handler, level = Events(), logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


class LivenessServer:
    """Accepts the connections that processes hold while they run."""

    def __init__(self) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self._processes: asyncio.Queue[tuple[int, asyncio.StreamReader]] = asyncio.Queue()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self._processes.put_nowait((int(await reader.readline()), reader))

    async def next_process(self) -> tuple[int, asyncio.StreamReader]:
        """Return the id and the connection of the next process that connects."""
        async with asyncio.timeout(TIMEOUT):
            return await self._processes.get()

    async def has_exited(self, connection: asyncio.StreamReader) -> bool:
        """Wait until the process has exited."""
        async with asyncio.timeout(TIMEOUT):
            try:
                return await connection.read() == b""
            except ConnectionResetError:
                return True


@pytest.fixture
async def liveness() -> AsyncIterator[LivenessServer]:
    liveness = LivenessServer()
    server = await asyncio.start_server(liveness.accept, "127.0.0.1", 0)
    liveness.port = server.sockets[0].getsockname()[1]
    yield liveness
    server.close()
    for writer in liveness.writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in liveness.writers), return_exceptions=True)


def child(program: str, *arguments: object, **options: Any) -> ChildProcess:
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    return ChildProcess(**{"name": "proxy", "argv": argv, "log": LOG, "redact": str, **options})


class Run:
    """A running service."""

    def __init__(self) -> None:
        self.stopping = Stopping()
        self.health = Health()
        self.dynamic = DynamicParts()
        self.code: int | None = None


def _build(part: ChildProcess | Part) -> Part:
    return part if isinstance(part, Part) else part.part()


@asynccontextmanager
async def serving(*parts: ChildProcess | Part, **options: Any) -> AsyncIterator[Run]:
    """Run the parts, or one that does nothing, and stop at the end of the context."""
    run = Run()
    idle = Part(name="idle", loops=(Stopping.wait,))
    task = asyncio.create_task(
        runner.run(
            parts=[partial(_build, part) for part in parts or (idle,)],
            dynamic=run.dynamic,
            log=LOG,
            health=run.health,
            stopping=run.stopping,
            signals=(),
            **options,
        )
    )
    try:
        yield run
    finally:
        run.stopping.request()
        async with asyncio.timeout(TIMEOUT):
            run.code = await task


async def test_the_output_of_a_child_is_logged_and_redacted(events: Events) -> None:
    program = (
        "import sys, time; print('key swordfish', flush=True); print('oops', file=sys.stderr); time.sleep(600)"
    )

    async with serving(child(program, redact=Redactor(["swordfish"]).redact)):
        await events.wait_until(lambda: bool(events.lines("stdout") and events.lines("stderr")))

    assert events.lines("stdout") == ["key ***"]
    assert events.lines("stderr") == ["oops"]


async def test_a_child_gets_the_given_environment_and_directory(events: Events, tmp_path: Path) -> None:
    script = 'tr "\\0" "\\n" </proc/self/environ; pwd; grep SigIgn /proc/self/status; exec sleep 600'
    environment = {"PATH": os.defpath, "COLOUR": "grün"}
    process = child("", argv=["sh", "-c", script], environment=environment, cwd=tmp_path)

    async with serving(process):
        await events.wait_until(lambda: any("SigIgn" in line for line in events.lines()))

    *variables, directory, ignored = events.lines()
    assert sorted(line for line in variables if not line.startswith(("PWD=", "OLDPWD=", "_="))) == [
        "COLOUR=grün", f"PATH={os.defpath}"
    ]  # fmt: skip
    assert directory == str(tmp_path)
    assert int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1) == 0


async def test_a_child_may_stop_gracefully(events: Events, liveness: LivenessServer) -> None:
    program = f"""{HOLD}
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
held = hold()
signal.sigwait({{signal.SIGTERM}})
print("finishing", flush=True)
"""
    async with serving(child(program, liveness.port)) as run:
        _, connection = await liveness.next_process()
        run.stopping.request()
        assert await liveness.has_exited(connection)

    assert run.code == ExitCode.SUCCESS
    assert events.lines() == ["finishing"]
    assert {"event": "child.stopped", "name": "proxy", "status": "exited with code 0"} in events.records


async def test_a_child_that_ignores_sigterm_is_killed(events: Events, liveness: LivenessServer) -> None:
    async with serving(child(IGNORE, liveness.port), drain_timeout=timedelta(milliseconds=50)) as run:
        _, connection = await liveness.next_process()
        run.stopping.request()
        assert await liveness.has_exited(connection)

    assert run.code == ExitCode.SUCCESS
    assert events.count("drain.expired") == 1


async def test_a_child_is_killed_after_the_timeout_before_other_parts_close(
    events: Events, liveness: LivenessServer
) -> None:
    started = asyncio.Event()

    async def start() -> None:
        started.set()

    async def close() -> None:
        assert await liveness.has_exited(connection)

    process = child(IGNORE, liveness.port)
    other = Part(name="other", loops=(Stopping.wait,), start=start, close=close)

    async with serving(process, other, drain_timeout=timedelta(milliseconds=50)):
        _, connection = await liveness.next_process()
        await started.wait()

    assert events.count("close.expired") == 0
    assert events.count("close.failed") == 0


async def test_grandchildren_are_killed_with_the_child(events: Events, liveness: LivenessServer) -> None:
    async with serving(child(SPAWN, liveness.port)) as run:
        _, one = await liveness.next_process()
        _, other = await liveness.next_process()
        run.stopping.request()
        assert await liveness.has_exited(one)
        assert await liveness.has_exited(other)

    assert run.code == ExitCode.SUCCESS


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("sys.exit(3)", "proxy exited with code 3 although it was not asked to stop"),
        ("sys.exit(0)", "proxy exited with code 0 although it was not asked to stop"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "proxy was killed by SIGKILL although it was not asked to stop"),
    ],
)
async def test_an_unexpected_exit_is_a_failure(events: Events, ending: str, text: str) -> None:
    async with serving(
        child(f"import os, signal, sys\nprint('last output', end='', flush=True)\n{ending}")
    ) as run:
        await events.wait_until(lambda: events.count("part.failed") == 1)

    assert run.code == ExitCode.FAILURE
    assert [str(record["error"]) for record in events.records if record["event"] == "part.failed"] == [text]
    names = [record["event"] for record in events.records]
    assert names.index("child.output") < names.index("part.failed")


async def test_the_failure_ends_with_the_last_line_of_stderr(events: Events) -> None:
    program = "import sys\nprint('one\\ntwo', file=sys.stderr)\nprint('three', flush=True)\nsys.exit(3)"

    async with serving(child(program)):
        await events.wait_until(lambda: events.count("part.failed") == 1)

    (failure,) = [record["error"] for record in events.records if record["event"] == "part.failed"]
    assert str(failure).endswith("although it was not asked to stop: two")


async def _never_ready() -> str:
    return "not yet"


@pytest.mark.parametrize(("code", "outcome"), [(0, "child.ended"), (1, "part.failed")])
async def test_a_child_that_may_end_is_not_spawned_again(code: int, outcome: str, events: Events) -> None:
    process = child(f"raise SystemExit({code})", ready=_never_ready, may_end=True)

    async with serving(process, restart=Backoff(timedelta(hours=1), timedelta(hours=1))) as run:
        await events.wait_until(lambda: events.count(outcome) == 1)
        has_check = "process" in run.health.readiness().checks
        checks = [check.message for name, check in run.health.readiness().checks.items() if name == "process"]
        is_stopping = run.stopping.requested

    assert events.count("child.started") == 1
    assert (has_check, checks) == ((True, [""]) if code == 0 else (False, []))
    assert not is_stopping


async def test_a_process_left_behind_by_a_dead_child_is_killed(events: Events, liveness: LivenessServer) -> None:
    process = child(SPAWN, liveness.port)

    async with serving(process, restart=Backoff(timedelta(hours=1), timedelta(hours=1))) as run:
        processes = [await liveness.next_process(), await liveness.next_process()]
        assert process.send_signal(signal.SIGKILL)

        for _, connection in processes:
            assert await liveness.has_exited(connection)
        assert not run.stopping.requested


async def test_a_failed_child_is_spawned_again(events: Events, liveness: LivenessServer) -> None:
    async with serving(child(WAIT, liveness.port), restart=IMMEDIATELY) as run:
        pid, _ = await liveness.next_process()
        os.kill(pid, signal.SIGKILL)

        other, _ = await liveness.next_process()

        assert other != pid
        assert run.dynamic.names == ()

    assert run.code == ExitCode.SUCCESS
    assert events.count("child.started") == 2


async def test_a_child_is_ready_when_its_probe_succeeds(events: Events) -> None:
    results: list[str | Exception | None] = [OSError("connection refused"), "warming up"]
    seen: list[str] = []

    async def ready() -> str | None:
        seen.append(run.health.readiness().checks["process"].message)
        result = results.pop(0) if results else None
        if isinstance(result, Exception):
            raise result
        return result

    async with serving(child("import time; time.sleep(600)", ready=ready)) as run:
        await events.wait_until(lambda: events.count("child.ready") == 1 and events.count("service.started") == 1)
        assert run.health.readiness().is_ok

    assert seen == ["starting", "starting: OSError: connection refused", "starting: warming up"]
    assert run.code == ExitCode.SUCCESS


async def test_without_a_probe_a_child_is_ready_when_it_is_spawned(events: Events) -> None:
    async with serving(child("import time; time.sleep(600)")) as run:
        await events.wait_until(lambda: events.count("service.started") == 1)

        assert run.health.readiness().is_ok


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/etc/passwd"])
async def test_a_program_that_cannot_be_run_fails_the_start(events: Events, program: str) -> None:
    async with serving(child("", argv=[program])) as run:
        await run.stopping.wait()

    assert run.code == ExitCode.FAILURE
    (failure,) = [record for record in events.records if record["event"] == "start.failed"]
    assert "expected a program that can be run, found none" in str(failure["error"])
    assert program in str(failure["error"])


async def test_a_program_is_found_relative_to_its_directory(events: Events, tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/bin/sh\necho hello\nexec sleep 600\n")
    script.chmod(0o755)

    async with serving(child("", argv=["./serve"], cwd=tmp_path)):
        await events.wait_until(lambda: events.lines() == ["hello"])


async def test_a_child_is_added_and_removed_while_the_service_runs(
    events: Events, liveness: LivenessServer
) -> None:
    process = child(WAIT, liveness.port)

    async with serving() as run:
        await events.wait_until(lambda: events.count("service.started") == 1)
        run.dynamic.add("proxy a", process.part)
        pid, connection = await liveness.next_process()
        assert process.pid == pid

        assert await run.dynamic.remove("proxy a")

        assert await liveness.has_exited(connection)
        assert process.pid is None

    assert run.code == ExitCode.SUCCESS


async def test_a_signal_reaches_the_running_child(events: Events) -> None:
    program = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGHUP})
    print("reloaded", flush=True)
"""
    process = child(program)
    assert not process.send_signal(signal.SIGHUP)

    async with serving(process):
        await events.wait_until(lambda: events.lines() == ["ready"])
        assert process.send_signal(signal.SIGHUP)
        await events.wait_until(lambda: events.lines() == ["ready", "reloaded"])

    assert not process.send_signal(signal.SIGHUP)


async def test_a_cancelled_run_leaves_no_child(events: Events, liveness: LivenessServer) -> None:
    task = asyncio.create_task(runner.run(parts=[child(IGNORE, liveness.port).part], log=LOG, signals=()))
    _, connection = await liveness.next_process()

    task.cancel()
    await asyncio.wait({task})

    assert await liveness.has_exited(connection)


SERVICE = """
import sys
from sentinel.runtime import process
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.child_process import ChildProcess

log = get_logger("test")
child = ChildProcess(name="child", argv=[sys.executable, "-c", *sys.argv[1:]], log=log, redact=str)
sys.exit(process.main(runner.run(parts=[child.part], log=log), log=log))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
async def test_a_service_killed_with_sigkill_takes_its_child_with_it(liveness: LivenessServer) -> None:
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVICE, IGNORE, str(liveness.port))
    _, connection = await liveness.next_process()

    service.kill()
    await service.wait()

    assert await liveness.has_exited(connection)
