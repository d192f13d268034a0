"""An agent without a hub as a process: it is handed one task, and can be killed at any of its writes.

    python -m tests.support.agent.applier_process agent.yaml versions api@2 [--order ID] [--die-at N] [--offline]

`versions` has a file for each version. What a hub would be told is printed as JSON, one report a line, then what a
heartbeat would say.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", type=Path)
    parser.add_argument("versions", type=Path)
    parser.add_argument("version")
    parser.add_argument("--order", default="")
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--offline", action="store_true")
    parsed = parser.parse_args()
    if parsed.die_at:
        die_at(parsed.die_at)
    asyncio.run(main(parsed))
