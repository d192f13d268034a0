"""One lifecycle for every service: start in order, run, drain, stop in reverse.

A command hands over what its parts share (listeners, a broker, a database) and a factory for each part. The
lifecycle alone owns signals, and decides when things begin and end:

* Shared things are opened in order, then the parts are built and started in order.
* A part's loops run in a task group of their own. One that fails - and returning early is failing - takes its
  part with it. Without `restart` the run then ends with exit code 1; with it, that part alone is closed and
  built anew, after a wait that grows, and shows in readiness meanwhile.
* At the first signal readiness goes off, and every loop is asked to stop and has until the end of `drain` to do
  so by itself; what is left then is cancelled. Parts, then shared things, are closed in reverse order, each
  within a limit. Exit code 0. A second signal ends the process on the spot, with 128 + its number.
* `Misconfigured`, raised while opening or starting, is exit code 2: trying again would not help.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import process, telemetry
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.health import Health
from sentinel.runtime.lifecycle.part import Loop, Part, PartFactory, Shared, Step
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.process import ExitCode
from sentinel.runtime.telemetry import Log, describe

if TYPE_CHECKING:
    from sentinel.runtime.metrics import Metrics

DRAIN = timedelta(seconds=20)
"""Leaves a third of Kubernetes' usual grace period for closing."""
CLOSING = timedelta(seconds=3)
"""For one step of closing; all steps together have no more than three times as long."""
_CLOSING_STEPS = 3


class LoopEnded(Exception):
    """A loop returned although nobody had asked it to stop."""


async def run(
    *,
    parts: Sequence[PartFactory],
    shared: Sequence[Shared] = (),
    log: Log,
    health: Health | None = None,
    metrics: Metrics | None = None,
    drain: timedelta = DRAIN,
    closing: timedelta = CLOSING,
    restart: Backoff | None = None,
    stopping: Stopping | None = None,
    signals: Collection[signal.Signals] = process.SIGNALS,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Runs a service until a signal, a failure, or the end of its finite parts; returns its exit code.

    Loops have `drain` to end, and then each step of closing has `closing`.
    `health` and `metrics` are kept true for whichever listener shows them. `stopping` is for a caller that is
    no signal and wants to end the run; `signals` is empty where the process is not ours.
    """
    service = _Service(
        log=log,
        health=health or Health(),
        metrics=metrics,
        drain=drain,
        closing=closing,
        restart=restart,
        stopping=stopping or Stopping(),
        jitter=jitter,
        has_several_parts=len(parts) > 1,
    )
    asyncio.get_running_loop().set_exception_handler(telemetry.handle_loop_exception)
    with process.signals(signals, lambda number: service.stop(signal=number.name), log=log):
        return await service.run(shared, parts)


@dataclass(kw_only=True)
class _Service:
    """One run, and what its parts have in common."""

    log: Log
    health: Health
    metrics: Metrics | None
    drain: timedelta
    closing: timedelta
    restart: Backoff | None
    stopping: Stopping
    jitter: Callable[[], float]
    has_several_parts: bool
    code: ExitCode = ExitCode.SUCCESS
    startup: str | None = "starting"
    close_by: float | None = None
    """On the loop's clock; set when the first step of the last closing begins."""

    def stop(self, **why: object) -> None:
        """Readiness goes before anything else does, so that nobody is sent here meanwhile."""
        self.health.stop()
        if not self.stopping.requested:
            self.log.info("service.stopping", **why)
            self.stopping.request()

    def fail(self, name: str, error: Exception, *, while_starting: bool) -> None:
        """Ends the run because of this."""
        is_misconfigured = while_starting and isinstance(error, Misconfigured)
        event = "start.failed" if while_starting else "part.failed"
        if is_misconfigured or (while_starting and isinstance(error, OSError)):
            self.log.error(event, name=name, error=error)
        else:
            self.log.unexpected(event, name=name, error=error)
        if self.code is ExitCode.SUCCESS:
            self.code = ExitCode.MISCONFIGURED if is_misconfigured else ExitCode.FAILURE
        self.stop(failed=name)

    async def run(self, shared: Sequence[Shared], factories: Sequence[PartFactory]) -> int:
        self.health.add(readiness={"startup": lambda: self.startup})
        async with AsyncExitStack() as stack:
            for one in shared:
                self.startup = f"opening {one.name}"
                try:
                    if await self.stopping.interrupts(self._enter(one, stack)):
                        break
                except Exception as error:
                    self.fail(one.name, error, while_starting=True)
            if not self.stopping.requested:
                await self._run_parts([_Supervised(n, build, self) for n, build in enumerate(factories, 1)])
            self.stop()
        self.log.info("service.stopped", code=self.code)
        return self.code

    async def _enter(self, one: Shared, stack: AsyncExitStack) -> None:
        context = one.context()
        await context.__aenter__()
        stack.push_async_callback(self.close, one.name, lambda: context.__aexit__(None, None, None))

    async def _run_parts(self, parts: Sequence[_Supervised]) -> None:
        tasks: dict[asyncio.Task[None], _Supervised] = {}
        try:
            for part in parts:
                self.startup = f"starting {part.name}"
                tasks[asyncio.create_task(part.run(), name=part.name)] = part
                await self.stopping.interrupts(part.attempted.wait())
                if self.stopping.requested:
                    break
            else:
                self.startup = None
                self.log.info("service.started", parts=[part.name for part in parts])
                await self.stopping.interrupts(_all_done(tasks))
            self.stop()
            await self._end(tasks, self.drain, "drain.expired")
        finally:  # also where the run itself is cancelled
            self.stop()
            for task in tasks:
                task.cancel()
            await self._end(tasks, self.closing, "cancel.ignored")
            for part in reversed(parts):
                await part.close()

    async def _end(
        self, tasks: Mapping[asyncio.Task[None], _Supervised], within: timedelta, otherwise: str
    ) -> None:
        pending = {task for task in tasks if not task.done()}
        if pending:
            _, pending = await asyncio.wait(pending, timeout=within.total_seconds())
        if pending:
            self.log.warning(otherwise, parts=[tasks[task].name for task in pending], after=within)

    async def close(self, name: str, step: Step) -> None:
        """One step of closing: whatever becomes of it, the next one is taken."""
        now = asyncio.get_running_loop().time()
        limit = self.closing.total_seconds()
        if self.stopping.requested:
            self.close_by = self.close_by or now + _CLOSING_STEPS * limit
            limit = min(limit, max(0.0, self.close_by - now))
        try:
            async with asyncio.timeout(limit):
                await step()
        except TimeoutError:
            self.log.warning("close.expired", name=name, after=timedelta(seconds=limit))
        except Exception as error:
            self.log.unexpected("close.failed", name=name, error=error)


class _Supervised:
    """One part's life: built, started, run, and where the service restarts parts, built again."""

    def __init__(self, number: int, build: PartFactory, service: _Service) -> None:
        self.name = f"part {number}"
        """Its own, once it has been built."""
        self.attempted = asyncio.Event()
        """Set once the first attempt to start has succeeded or failed."""
        self._build = build
        self._service = service
        self._part: Part | None = None
        self._trouble: str | None = "starting"

    async def run(self) -> None:
        service, restart = self._service, self._service.restart
        self._answer_to(self.name)
        failures = 0
        while not service.stopping.requested:
            began = asyncio.get_running_loop().time()
            try:
                await self._live()
                return
            except Exception as error:
                failure = _innermost(error)
            finally:
                was_starting = self._trouble is not None
                self.attempted.set()
            if restart is None or service.stopping.requested:
                service.fail(self.name, failure, while_starting=was_starting)
                return
            await self.close()
            lived = timedelta(seconds=asyncio.get_running_loop().time() - began)
            failures = 1 if lived > restart.maximum else failures + 1
            wait = restart.delay(failures - 1, service.jitter())
            self._trouble = f"failure {failures} in a row: {describe(failure)}"
            service.log.unexpected("part.failed", name=self.name, error=failure, failures=failures, retry_in=wait)
            await service.stopping.interrupts(asyncio.sleep(wait.total_seconds()))

    async def _live(self) -> None:
        self._trouble = self._trouble or "starting"
        built = self._build()
        part = self._part = built if isinstance(built, Part) else await built
        self._answer_to(part.name)
        self._service.health.add(
            readiness={self._qualified(name): check for name, check in part.checks.items()},
            liveness={self._qualified(name): check for name, check in part.liveness.items()},
        )
        if self._service.metrics is not None and part.registry is not None:
            self._service.metrics.add(part.registry)
        if part.start is not None:
            await part.start()
        self._trouble = None
        self.attempted.set()
        async with asyncio.TaskGroup() as loops:
            for loop in part.loops:
                loops.create_task(self._keep(loop, part), name=f"{self.name}:{_name(loop)}")

    def _answer_to(self, name: str) -> None:
        self._service.health.forget(self.name)
        self._service.health.add(readiness={name: lambda: self._trouble})
        self.name = name

    async def _keep(self, loop: Loop, part: Part) -> None:
        try:
            await loop(self._service.stopping)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                # Libraries let the cancellation of something of their own escape. A task group takes it for
                # ours and says nothing, and the loop would be gone unnoticed.
                raise LoopEnded(f"{_name(loop)} ended in a cancellation that nobody had asked for") from error
            raise
        if not part.is_finite and not self._service.stopping.requested:
            raise LoopEnded(f"{_name(loop)} returned although nobody had asked it to stop")

    async def close(self) -> None:
        """Closes the part that was built last, if it has not been closed yet."""
        part, self._part = self._part, None
        if part is None:
            return
        self._service.health.forget(*map(self._qualified, (*part.checks, *part.liveness)))
        if self._service.metrics is not None and part.registry is not None:
            self._service.metrics.discard(part.registry)
        if part.close is not None:
            await self._service.close(self.name, part.close)

    def _qualified(self, check: str) -> str:
        return f"{self.name}.{check}" if self._service.has_several_parts else check


async def _all_done(tasks: Collection[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def _innermost(error: Exception) -> Exception:
    """The failure itself, out of the task groups it came through; a group only where several came at once."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _name(loop: Loop) -> str:
    return getattr(loop, "__qualname__", None) or type(loop).__qualname__
