"""A journal of a run, and the parts, loops and shared resources that write to it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from random import Random
from typing import Any

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Loop, Part, PartFactory, SharedResource
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.probes.health import Health
from sentinel.testing import loop as simulated_loop
from sentinel.testing.loop import simulated

LOG = get_logger("test")
SECOND = timedelta(seconds=1)
RESTART = Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0)


class Journal:
    """What happened in a run, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.stopping = Stopping()
        self.health = Health()
        self.code: int | None = None
        """The exit code of the run."""
        self.elapsed = timedelta(0)
        """The length of the run."""

    def note(self, entry: str) -> None:
        self.entries.append(entry)

    def shared(
        self, name: str, *, opening: float = 0, closing: float = 0, fails: Exception | None = None
    ) -> SharedResource:
        @asynccontextmanager
        async def context() -> AsyncIterator[None]:
            self.note(f"open {name}")
            await asyncio.sleep(opening)
            if fails is not None:
                raise fails
            yield
            await asyncio.sleep(closing)
            self.note(f"closed {name}")

        return SharedResource(name, context)

    def part(
        self,
        name: str,
        *loops: Loop,
        start: Exception | None = None,
        start_seconds: float = 0,
        is_finite: bool = False,
    ) -> Part:
        async def begin() -> None:
            self.note(f"start {name}")
            await asyncio.sleep(start_seconds)
            if start is not None:
                raise start

        async def end() -> None:
            self.note(f"close {name}")

        loops = loops or (self.waits_for_stop(name),)
        return Part(name=name, loops=loops, start=begin, close=end, is_finite=is_finite)

    def waits_for_stop(self, name: str) -> Loop:
        async def loop(stopping: Stopping) -> None:
            await stopping.wait()
            self.note(f"stopped {name}")

        return loop

    def ignores_stop(self, name: str) -> Loop:
        """Runs until it is cancelled."""

        async def loop(stopping: Stopping) -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.note(f"cancelled {name}")
                raise

        return loop

    def ignores_cancellation(self, release: asyncio.Event) -> Callable[..., Coroutine[Any, Any, None]]:
        """A loop, or any other coroutine function, that ignores its cancellation until it is released."""

        async def wait(*arguments: object) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    self.note("no")

        return wait

    @simulated
    async def run(
        self,
        *parts: Part | PartFactory,
        shared: tuple[SharedResource, ...] = (),
        stop_after: float | None = 100,
        **options: Any,
    ) -> int:
        """Run to the end on virtual time. Stopping is requested after `stop_after` seconds."""
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, self.stopping.request)
        code = await self._run(parts, shared=shared, **options)
        self.elapsed = elapsed()
        return code

    @asynccontextmanager
    async def serving(
        self, *parts: Part | PartFactory, shared: tuple[SharedResource, ...] = (), **options: Any
    ) -> AsyncIterator[DynamicParts]:
        """Start a service, and stop it at the end of the context.

        Without parts it has one that does nothing, called idle.
        """
        dynamic = DynamicParts()
        idle = Part(name="idle", loops=(Stopping.wait,))
        run = asyncio.create_task(self._run(parts or (idle,), shared=shared, dynamic=dynamic, **options))
        await asyncio.sleep(1)
        try:
            yield dynamic
        finally:
            self.stopping.request()
            self.code = await run

    async def _run(self, parts: tuple[Part | PartFactory, ...], **options: Any) -> int:
        options = {"signals": (), **options}
        factories = [_factory(part) for part in parts]
        return await runner.run(parts=factories, log=LOG, health=self.health, stopping=self.stopping, **options)

    def problems(self) -> dict[str, str]:
        """The failing readiness checks."""
        checks = self.health.readiness().checks
        return {name: check.message for name, check in checks.items() if check.status == "error"}


def _factory(part: Part | PartFactory) -> PartFactory:
    return (lambda: part) if isinstance(part, Part) else part


def shuffled(
    test: Callable[[Journal, Random], Coroutine[Any, Any, None]],
) -> Callable[[Journal, Random], None]:
    """Decorate a test so that it runs on virtual time, and ready tasks run in an order drawn from `random`."""

    def on_shuffled_loop(journal: Journal, random: Random) -> None:
        simulated_loop.run(test(journal, random), order=random)

    return on_shuffled_loop


@contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    """Capture log records. The list is filled when the context ends."""
    stream, records = io.StringIO(), list[dict[str, Any]]()
    configured = configure_logging("info", "json", stream=stream)
    try:
        yield records
    finally:
        configured.restore()
        records.extend(json.loads(line) for line in stream.getvalue().splitlines())


async def fails(stopping: Stopping) -> None:
    await asyncio.sleep(1)
    raise LookupError("lost")


async def returns(stopping: Stopping) -> None:
    await asyncio.sleep(1)


def elapsed() -> timedelta:
    """The time since the start of the simulated loop."""
    return timedelta(seconds=asyncio.get_running_loop().time())
