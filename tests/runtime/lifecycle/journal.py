"""A journal of what happens in a run, and the parts, loops and shared things that write it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Loop, Part, Shared
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import configure_logging, get_logger
from sentinel.runtime.probes.health import Health
from sentinel.testing import loop as simulated

LOG = get_logger("test")
SECOND = timedelta(seconds=1)
RESTART = Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0)


class Journal:
    """What happened, in order; and the parts, loops and shared things that write it."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.stopping = Stopping()
        self.health = Health()
        self.code: int | None = None
        """What `serving` ended with."""

    def note(self, entry: str) -> None:
        self.entries.append(entry)

    def shared(
        self, name: str, *, opening: float = 0, closing: float = 0, fails: Exception | None = None
    ) -> Shared:
        @asynccontextmanager
        async def context() -> AsyncIterator[None]:
            self.note(f"open {name}")
            await asyncio.sleep(opening)
            if fails is not None:
                raise fails
            yield
            await asyncio.sleep(closing)
            self.note(f"closed {name}")

        return Shared(name, context)

    def part(self, name: str, *loops: Loop, start: Exception | None = None, is_finite: bool = False) -> Part:
        async def begin() -> None:
            self.note(f"start {name}")
            if start is not None:
                raise start

        async def end() -> None:
            self.note(f"close {name}")

        return Part(name=name, loops=loops or (self.patient(name),), start=begin, close=end, is_finite=is_finite)

    def patient(self, name: str) -> Loop:
        """Runs until it is asked to stop."""

        async def loop(stopping: Stopping) -> None:
            await stopping.wait()
            self.note(f"stopped {name}")

        return loop

    def deaf(self, name: str) -> Loop:
        """Does not listen to requests, only to cancellation."""

        async def loop(stopping: Stopping) -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.note(f"cancelled {name}")
                raise

        return loop

    def stubborn(self, release: asyncio.Event) -> Callable[..., Coroutine[Any, Any, None]]:
        """Ignores its cancellation until it is released; a loop, or anything else that is awaited."""

        async def resist(*arguments: object) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    self.note("no")

        return resist

    def run(
        self,
        *parts: Part | Callable[[], Part],
        shared: tuple[Shared, ...] = (),
        stop_after: float | None = 100,
        **options: Any,
    ) -> int:
        """Runs to the end on virtual time, asking to stop after so many seconds."""

        async def scenario() -> int:
            if stop_after is not None:
                asyncio.get_running_loop().call_later(stop_after, self.stopping.request)
            return await runner.run(
                parts=[factory(part) for part in parts],
                shared=shared,
                log=LOG,
                health=self.health,
                stopping=self.stopping,
                signals=(),
                **options,
            )

        return simulated.run(scenario())

    @asynccontextmanager
    async def serving(
        self, *parts: Part | Callable[[], Part], shared: tuple[Shared, ...] = (), **options: Any
    ) -> AsyncIterator[DynamicParts]:
        """A service that has started, as an async test sees it from outside, until the context ends.

        Without parts it has one that does nothing, called idle.
        """
        dynamic = DynamicParts()
        run = asyncio.create_task(
            runner.run(
                parts=[factory(part) for part in parts] or [lambda: Part(name="idle", loops=(Stopping.wait,))],
                shared=shared,
                dynamic=dynamic,
                log=LOG,
                health=self.health,
                stopping=self.stopping,
                **{"signals": (), **options},
            )
        )
        await asyncio.sleep(1)
        try:
            yield dynamic
        finally:
            self.stopping.request()
            self.code = await run

    def troubles(self) -> dict[str, str]:
        """What readiness complains about."""
        checks = self.health.readiness().checks
        return {name: check.message for name, check in checks.items() if check.status == "error"}


def factory(part: Part | Callable[[], Part]) -> Callable[[], Part]:
    return (lambda: part) if isinstance(part, Part) else part


@contextmanager
def recorded() -> Iterator[list[dict[str, Any]]]:
    """The log records written in its context, complete once it is left."""
    stream, records = io.StringIO(), list[dict[str, Any]]()
    configured = configure_logging("info", "json", stream=stream)
    try:
        yield records
    finally:
        configured.restore()
        records.extend(json.loads(line) for line in stream.getvalue().splitlines())


def on_virtual_time(scenario: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test of a coroutine, with a loop on which waiting takes no time."""

    @wraps(scenario)
    def test() -> None:
        async def run() -> None:
            await scenario()

        simulated.run(run())

    return test


async def fails(stopping: Stopping) -> None:
    await asyncio.sleep(1)
    raise LookupError("lost")


async def returns(stopping: Stopping) -> None:
    await asyncio.sleep(1)


def elapsed() -> timedelta:
    return timedelta(seconds=asyncio.get_running_loop().time())
