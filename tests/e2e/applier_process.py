"""An agent without a hub as a process: it is handed one task, and can be killed at any of its writes.

    python -m tests.e2e.applier_process

Each line on stdin is a JSON array of arguments, such as `["agent.yaml", "versions", "api@2", "--order", "d-1"]`,
and gets a line with the exit code and the output. `versions` has a file for each version. The output is what a hub
would be told, one report a line, then what a heartbeat would say.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from sentinel.agent import settings
from sentinel.agent.applier import Applier
from sentinel.cli.wiring.applier import build_applier
from sentinel.core.agent.orders import Content, Order, Source, Task
from sentinel.core.hub.versions import content_hash
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger

DEADLINE = timedelta(minutes=10)


def die_at(count: int) -> None:
    """Let the process be killed when it is about to make its write number `count` durable, counted from 1."""
    real, calls = os.fsync, 0

    def fsync(file: int) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        real(file)

    os.fsync = fsync  # type: ignore[assignment]


class LocalHub:
    """Hands over one task, its content, and prints what comes back."""

    def __init__(self, applier: Applier, versions: Path) -> None:
        self._applier = applier
        self._versions = versions
        self.is_done = False

    def text(self, version: str) -> str:
        return (self._versions / version).read_text()

    def exchange(self) -> None:
        for report in self._applier.pending_reports:
            print(msgspec.json.encode(report).decode(), flush=True)  # noqa: T201
            self.is_done = self.is_done or report.state.is_final
            self._applier.delivered(report)
        wanted = self._applier.wanted
        if wanted is not None:
            text = self.text(wanted.version)
            content = Content(version=wanted.version, hash=content_hash(text), content=text)
            self._applier.supply(wanted, content)


async def main(arguments: argparse.Namespace) -> None:
    loaded = settings.load(file=arguments.settings, environ=os.environ)
    if loaded.settings is None:
        sys.exit("\n".join(map(str, loaded.problems)))
    clock = SystemClock()
    built = build_applier(loaded.settings, environ=os.environ, clock=clock, log=get_logger("agent"))
    applier, stopping = built.applier, Stopping()
    running = asyncio.create_task(applier.run(stopping))
    if not arguments.offline:
        hub = LocalHub(applier, arguments.versions)
        order = None
        if arguments.order:
            order = Order(deployment_id=arguments.order, deadline=clock.now() + DEADLINE)
        task_hash = content_hash(hub.text(arguments.version))
        applier.receive(
            Task(version=arguments.version, hash=task_hash, order=order, source=Source.ACTION, marker="a1")
        )
        while not hub.is_done and not (order is None and applier.running.version == arguments.version):
            applier.changed.clear()
            hub.exchange()
            if not hub.is_done:
                await applier.changed.wait()
    stopping.request()
    await running
    print(msgspec.json.encode(await applier.observe()).decode(), flush=True)  # noqa: T201
    await built.close()


def run(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    parsed = parser.parse_args(words)
    if parsed.die_at:
        die_at(parsed.die_at)
    asyncio.run(main(parsed))


def serve(parser: argparse.ArgumentParser) -> None:
    """Run an agent for each line of arguments, in a process that is forked: a new one would import for seconds."""
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, sys.stdout.fileno())
            code = 1
            try:
                run(parser, msgspec.json.decode(line, type=list[str]))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader) as output:
            said = output.read()
        _, status = os.waitpid(child, 0)
        finished = {"code": os.waitstatus_to_exitcode(status), "stdout": said}
        print(msgspec.json.encode(finished).decode(), flush=True)  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", type=Path)
    parser.add_argument("versions", type=Path)
    parser.add_argument("version")
    parser.add_argument("--order", default="")
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--offline", action="store_true")
    return parser


if __name__ == "__main__":
    serve(_parser())
