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
* A fault that a person has to mend (`misconfigured`), found while opening or starting, is exit code 2: trying
  again would not help.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from sentinel.ports import BrokerMisconfigured
from sentinel.runtime import process, telemetry
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.health import Health, Trouble
from sentinel.runtime.process import main
from sentinel.runtime.stopping import Stopping
from sentinel.runtime.telemetry import Log, describe

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sentinel.runtime.metrics import Metrics

__all__ = ["ExitCode", "LoopEnded", "Part", "Shared", "Stopping", "main", "opened", "run"]

DRAIN = timedelta(seconds=20)
"""Leaves a third of Kubernetes' usual grace period for closing."""
CLOSE = timedelta(seconds=3)


class ExitCode(IntEnum):
    SUCCESS = 0
    FAILURE = 1
    MISCONFIGURED = 2


class LoopEnded(Exception):
    """A loop returned although nobody had asked it to stop."""


Loop: TypeAlias = Callable[[Stopping], Coroutine[Any, Any, None]]
Step: TypeAlias = Callable[[], Awaitable[object]]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A component, built and ready to run; what `build_x(settings, shared)` returns."""

    name: str
    """As logs and readiness call it; no two parts of a run have the same."""
    loops: Sequence[Loop]
    """Each runs until it is asked to stop."""
    checks: Mapping[str, Trouble] = {}
    """Readiness: what is wrong, or None. A check begins as trouble and clears with the first success."""
    liveness: Mapping[str, Trouble] = {}
    """What a restart of the process would mend, or None."""
    registry: CollectorRegistry | None = None
    start: Step | None = None
    """Before the loops begin; its failure is the part's."""
    close: Step | None = None
    """After the loops have ended; also where `start` failed."""
    is_finite: bool = False
    """Its loops may return by themselves. A run whose parts have all returned is over, with success."""


PartFactory: TypeAlias = Callable[[], "Part | Awaitable[Part]"]


class Shared(msgspec.Struct, frozen=True):
    """Something parts share: entered before any of them is built, left after the last is closed."""

    name: str
    context: Callable[[], AbstractAsyncContextManager[object]]


class _Openable(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


def opened(name: str, thing: _Openable) -> Shared:
    """Shares something that has `open` and `close`, such as a `ports.Publisher`."""

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        try:
            await thing.open()
            yield
        finally:
            await thing.close()

    return Shared(name, context)


async def run(
    *,
    parts: Sequence[PartFactory],
    shared: Sequence[Shared] = (),
    log: Log,
    health: Health | None = None,
    metrics: Metrics | None = None,
    drain: timedelta = DRAIN,
    restart: Backoff | None = None,
    misconfigured: tuple[type[Exception], ...] = (BrokerMisconfigured,),
    stopping: Stopping | None = None,
    signals: Collection[signal.Signals] = process.SIGNALS,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Runs a service until a signal, a failure, or the end of its finite parts; returns its exit code.

    `health` and `metrics` are kept true for whichever listener shows them. `stopping` is for a caller that is
    no signal and wants to end the run; `signals` is empty where the process is not ours.
    """
    service = _Service(
        log=log,
        health=health or Health(),
        metrics=metrics,
        drain=drain,
        restart=restart,
        misconfigured=misconfigured,
        stopping=stopping or Stopping(),
        jitter=jitter,
        part_count=len(parts),
    )
    asyncio.get_running_loop().set_exception_handler(telemetry.handle_loop_exception)
    with process.signals(signals, lambda number: service.stop(signal=number.name), log=log):
        return await service.run(shared, parts)


class _Service:
    """One run: what its parts have in common."""

    def __init__(
        self,
        *,
        log: Log,
        health: Health,
        metrics: Metrics | None,
        drain: timedelta,
        restart: Backoff | None,
        misconfigured: tuple[type[Exception], ...],
        stopping: Stopping,
        jitter: Callable[[], float],
        part_count: int,
    ) -> None:
        self.log = log
        self.health = health
        self.metrics = metrics
        self.restart = restart
        self.stopping = stopping
        self.jitter = jitter
        self.has_several_parts = part_count > 1
        self._drain = drain
        self._misconfigured = misconfigured
        self._code = ExitCode.SUCCESS
        self._startup: str | None = "starting"

    def stop(self, **why: object) -> None:
        """Readiness goes before anything else does, so that nobody is sent here meanwhile."""
        self.health.stop()
        if not self.stopping.requested:
            self.log.info("service.stopping", **why)
            self.stopping.request()

    def fail(self, name: str, error: Exception, *, while_starting: bool) -> None:
        """Ends the run because of this."""
        is_misconfigured = while_starting and isinstance(error, self._misconfigured)
        event = "start.failed" if while_starting else "part.failed"
        if is_misconfigured or (while_starting and isinstance(error, OSError)):
            self.log.error(event, name=name, error=error)
        else:
            self.log.unexpected(event, name=name, error=error)
        if self._code is ExitCode.SUCCESS:
            self._code = ExitCode.MISCONFIGURED if is_misconfigured else ExitCode.FAILURE
        self.stop(failed=name)

    async def run(self, shared: Sequence[Shared], factories: Sequence[PartFactory]) -> int:
        self.health.add(readiness={"startup": lambda: self._startup})
        async with AsyncExitStack() as stack:
            for one in shared:
                self._startup = f"opening {one.name}"
                try:
                    if await self.stopping.interrupts(self._enter(one, stack)):
                        break
                except Exception as error:
                    self.fail(one.name, error, while_starting=True)
            if not self.stopping.requested:
                await self._run_parts([_Supervised(n, build, self) for n, build in enumerate(factories, 1)])
            self.stop()
        self.log.info("service.stopped", code=self._code)
        return self._code

    async def _enter(self, one: Shared, stack: AsyncExitStack) -> None:
        context = one.context()
        await context.__aenter__()
        stack.push_async_callback(self.close, one.name, lambda: context.__aexit__(None, None, None))

    async def _run_parts(self, parts: Sequence[_Supervised]) -> None:
        tasks: dict[asyncio.Task[None], _Supervised] = {}
        try:
            for part in parts:
                self._startup = f"starting {part.name}"
                tasks[asyncio.create_task(part.run(), name=part.name)] = part
                if await self.stopping.interrupts(part.attempted.wait()):
                    break
            else:
                self._startup = None
                self.log.info("service.started", parts=[part.name for part in parts])
                await self.stopping.interrupts(_all_done(tasks))
            self.stop()
            await self._end(tasks, within=self._drain)
        finally:  # also where the run itself is cancelled
            for task in tasks:
                task.cancel()
            await self._end(tasks, within=CLOSE)
            for part in reversed(parts):
                await part.close()

    async def _end(self, tasks: Mapping[asyncio.Task[None], _Supervised], *, within: timedelta) -> None:
        pending = [task for task in tasks if not task.done()]
        if pending:
            _, pending_still = await asyncio.wait(pending, timeout=within.total_seconds())
            if pending_still:
                self.log.warning("drain.expired", parts=[tasks[task].name for task in pending_still], after=within)

    async def close(self, name: str, step: Step) -> None:
        """One step of closing: whatever becomes of it, the next one is taken."""
        try:
            async with asyncio.timeout(CLOSE.total_seconds()):
                await step()
        except TimeoutError:
            self.log.warning("close.expired", name=name, after=CLOSE)
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
            self._trouble = f"failed {failures} times in a row, last with {describe(failure)}"
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
        await loop(self._service.stopping)
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
