"""A child process is a part: it starts, fails, restarts and stops like any other, and never outlives the service.

With real processes. Whether one is alive is seen from a connection that it holds.
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

LIMIT = 20
"""Seconds; for what happens within milliseconds unless the machine is busy."""
AT_ONCE = Backoff(initial=timedelta(0), maximum=timedelta(0))
LOG = get_logger("child-test")

HOLD = """
import os, signal, socket, subprocess, sys, time
def hold():
    held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    held.sendall(b"%d\\n" % os.getpid())
    return held
"""
"""A child begins with it to tell that it is alive, and its process id."""
WAIT = f"{HOLD}held = hold()\nprint('ready', flush=True)\ntime.sleep(600)\n"
IGNORE = f"{HOLD}signal.signal(signal.SIGTERM, signal.SIG_IGN)\nheld = hold()\ntime.sleep(600)\n"
SPAWN = f"""
{HOLD}
subprocess.Popen([sys.executable, "-c", {IGNORE!r}, sys.argv[1]])
held = hold()
time.sleep(600)
"""


class Events(logging.Handler):
    """What the child's part logs, as it comes."""

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

    async def until(self, is_reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
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


class Lifelines:
    """Connections that processes hold while they live."""

    def __init__(self) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self._arrived: asyncio.Queue[tuple[int, asyncio.StreamReader]] = asyncio.Queue()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self._arrived.put_nowait((int(await reader.readline()), reader))

    async def born(self) -> tuple[int, asyncio.StreamReader]:
        """The next process that is there: its id, and what ends with it."""
        async with asyncio.timeout(LIMIT):
            return await self._arrived.get()

    async def is_gone(self, life: asyncio.StreamReader) -> bool:
        """Waits until the process is dead."""
        async with asyncio.timeout(LIMIT):
            try:
                return await life.read() == b""
            except ConnectionResetError:
                return True


@pytest.fixture
async def lifelines() -> AsyncIterator[Lifelines]:
    lifelines = Lifelines()
    server = await asyncio.start_server(lifelines.accept, "127.0.0.1", 0)
    lifelines.port = server.sockets[0].getsockname()[1]
    yield lifelines
    server.close()
    for writer in lifelines.writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in lifelines.writers), return_exceptions=True)


def child(program: str, *arguments: object, **options: Any) -> ChildProcess:
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    return ChildProcess(**{"name": "proxy", "argv": argv, "log": LOG, "redact": str, **options})


class Run:
    """A service under way."""

    def __init__(self) -> None:
        self.stopping = Stopping()
        self.health = Health()
        self.dynamic = DynamicParts()
        self.code: int | None = None


def _build(part: ChildProcess | Part) -> Part:
    return part if isinstance(part, Part) else part.part()


@asynccontextmanager
async def serving(*parts: ChildProcess | Part, **options: Any) -> AsyncIterator[Run]:
    """Runs the parts, or one that does nothing, and stops at the end of the context."""
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
        async with asyncio.timeout(LIMIT):
            run.code = await task


async def test_what_a_child_prints_is_logged_without_secrets(events: Events) -> None:
    program = (
        "import sys, time; print('key swordfish', flush=True); print('oops', file=sys.stderr); time.sleep(600)"
    )

    async with serving(child(program, redact=Redactor(["swordfish"]).redact)):
        await events.until(lambda: bool(events.lines("stdout") and events.lines("stderr")))

    assert events.lines("stdout") == ["key ***"]
    assert events.lines("stderr") == ["oops"]


async def test_a_child_has_the_environment_and_folder_it_was_given(events: Events, tmp_path: Path) -> None:
    shown = 'tr "\\0" "\\n" </proc/self/environ; pwd; grep SigIgn /proc/self/status; exec sleep 600'
    environment = {"PATH": os.defpath, "COLOUR": "grün"}
    process = child("", argv=["sh", "-c", shown], environment=environment, cwd=tmp_path)

    async with serving(process):
        await events.until(lambda: any("SigIgn" in line for line in events.lines()))

    *variables, folder, ignored = events.lines()
    assert sorted(line for line in variables if not line.startswith(("PWD=", "OLDPWD=", "_="))) == [
        "COLOUR=grün", f"PATH={os.defpath}"
    ]  # fmt: skip
    assert folder == str(tmp_path)
    assert int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1) == 0


async def test_a_child_is_asked_to_stop_and_may_take_its_time(events: Events, lifelines: Lifelines) -> None:
    program = f"""{HOLD}
def stop(number, frame):
    print("finishing", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
held = hold()
time.sleep(600)
"""
    async with serving(child(program, lifelines.port)) as run:
        _, life = await lifelines.born()
        run.stopping.request()
        assert await lifelines.is_gone(life)

    assert run.code == ExitCode.SUCCESS
    assert events.lines() == ["finishing"]
    assert {"event": "child.stopped", "name": "proxy", "status": "exited with code 0"} in events.records


async def test_a_child_that_does_not_stop_in_time_is_killed(events: Events, lifelines: Lifelines) -> None:
    async with serving(child(IGNORE, lifelines.port), drain_timeout=timedelta(milliseconds=50)) as run:
        _, life = await lifelines.born()
        run.stopping.request()
        assert await lifelines.is_gone(life)

    assert run.code == ExitCode.SUCCESS
    assert events.count("drain.expired") == 1


async def test_a_child_whose_time_is_over_is_killed_before_other_parts_close(
    events: Events, lifelines: Lifelines
) -> None:
    started = asyncio.Event()

    async def start() -> None:
        started.set()

    async def close() -> None:
        assert await lifelines.is_gone(life)

    process = child(IGNORE, lifelines.port)
    other = Part(name="other", loops=(Stopping.wait,), start=start, close=close)

    async with serving(process, other, drain_timeout=timedelta(milliseconds=50)):
        _, life = await lifelines.born()
        await started.wait()

    assert events.count("close.expired") == 0
    assert events.count("close.failed") == 0


async def test_what_a_child_has_started_is_killed_with_it(events: Events, lifelines: Lifelines) -> None:
    async with serving(child(SPAWN, lifelines.port)) as run:
        _, one = await lifelines.born()
        _, other = await lifelines.born()
        run.stopping.request()
        assert await lifelines.is_gone(one)
        assert await lifelines.is_gone(other)

    assert run.code == ExitCode.SUCCESS


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("sys.exit(3)", "proxy exited with code 3 although it was not asked to stop"),
        ("sys.exit(0)", "proxy exited with code 0 although it was not asked to stop"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "proxy was killed by SIGKILL although it was not asked to stop"),
    ],
)
async def test_an_exit_that_was_not_asked_for_is_a_failure(events: Events, ending: str, text: str) -> None:
    async with serving(child(f"import os, signal, sys\nprint('last words', end='', flush=True)\n{ending}")) as run:
        await events.until(lambda: events.count("part.failed") == 1)

    assert run.code == ExitCode.FAILURE
    assert [str(record["error"]) for record in events.records if record["event"] == "part.failed"] == [text]
    names = [record["event"] for record in events.records]
    assert names.index("child.output") < names.index("part.failed")


async def test_a_process_that_a_dead_child_left_behind_is_killed(events: Events, lifelines: Lifelines) -> None:
    process = child(SPAWN, lifelines.port)

    async with serving(process, restart=Backoff(timedelta(hours=1), timedelta(hours=1))) as run:
        lives = [await lifelines.born(), await lifelines.born()]
        assert process.send_signal(signal.SIGKILL)

        for _, life in lives:
            assert await lifelines.is_gone(life)
        assert not run.stopping.requested


async def test_a_child_that_fails_is_spawned_again(events: Events, lifelines: Lifelines) -> None:
    async with serving(child(WAIT, lifelines.port), restart=AT_ONCE) as run:
        pid, _ = await lifelines.born()
        os.kill(pid, signal.SIGKILL)

        other, _ = await lifelines.born()

        assert other != pid
        assert run.dynamic.names == ()

    assert run.code == ExitCode.SUCCESS
    assert events.count("child.started") == 2


async def test_a_child_is_ready_when_its_check_says_so(events: Events) -> None:
    answers: list[str | Exception | None] = [OSError("connection refused"), "warming up"]
    asked: list[str] = []

    async def ready() -> str | None:
        asked.append(run.health.readiness().checks["process"].message)
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with serving(child("import time; time.sleep(600)", ready=ready)) as run:
        await events.until(lambda: events.count("child.ready") == 1 and events.count("service.started") == 1)
        assert run.health.readiness().is_ok

    assert asked == ["starting", "starting: OSError: connection refused", "starting: warming up"]
    assert run.code == ExitCode.SUCCESS


async def test_without_a_check_a_child_is_ready_when_it_is_spawned(events: Events) -> None:
    async with serving(child("import time; time.sleep(600)")) as run:
        await events.until(lambda: events.count("service.started") == 1)

        assert run.health.readiness().is_ok


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/etc/passwd"])
async def test_a_program_that_cannot_be_run_fails_the_start(events: Events, program: str) -> None:
    async with serving(child("", argv=[program])) as run:
        await run.stopping.wait()

    assert run.code == ExitCode.FAILURE
    (failure,) = [record for record in events.records if record["event"] == "start.failed"]
    assert "expected a program that can be run, found none" in str(failure["error"])
    assert program in str(failure["error"])


async def test_a_program_is_found_relative_to_its_folder(events: Events, tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/bin/sh\necho hello\nexec sleep 600\n")
    script.chmod(0o755)

    async with serving(child("", argv=["./serve"], cwd=tmp_path)):
        await events.until(lambda: events.lines() == ["hello"])


async def test_a_child_is_added_and_removed_while_the_service_runs(events: Events, lifelines: Lifelines) -> None:
    process = child(WAIT, lifelines.port)

    async with serving() as run:
        await events.until(lambda: events.count("service.started") == 1)
        run.dynamic.add("proxy a", process.part)
        pid, life = await lifelines.born()
        assert process.pid == pid

        assert await run.dynamic.remove("proxy a")

        assert await lifelines.is_gone(life)
        assert process.pid is None

    assert run.code == ExitCode.SUCCESS


async def test_a_signal_reaches_the_child_that_runs(events: Events) -> None:
    program = """
import signal, time
signal.signal(signal.SIGHUP, lambda number, frame: print("reloaded", flush=True))
print("ready", flush=True)
while True: time.sleep(600)
"""
    process = child(program)
    assert not process.send_signal(signal.SIGHUP)

    async with serving(process):
        await events.until(lambda: events.lines() == ["ready"])
        assert process.send_signal(signal.SIGHUP)
        await events.until(lambda: events.lines() == ["ready", "reloaded"])

    assert not process.send_signal(signal.SIGHUP)


async def test_a_cancelled_run_leaves_no_child(events: Events, lifelines: Lifelines) -> None:
    task = asyncio.create_task(runner.run(parts=[child(IGNORE, lifelines.port).part], log=LOG, signals=()))
    _, life = await lifelines.born()

    task.cancel()
    await asyncio.wait({task})

    assert await lifelines.is_gone(life)


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
async def test_a_service_that_is_killed_hard_takes_its_child_with_it(lifelines: Lifelines) -> None:
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVICE, IGNORE, str(lifelines.port))
    _, life = await lifelines.born()

    service.kill()
    await service.wait()

    assert await lifelines.is_gone(life)
