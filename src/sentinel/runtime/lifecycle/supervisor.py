"""Supervises parts: builds, starts and runs them, builds them again after a failure, and closes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Hook, Loop, Part, PartFactory
from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.log_format import describe

PartObserver: TypeAlias = Callable[[Exception | None], None]
"""Gets None when a part has started, and the error when it has failed and will be built again."""


class LoopEnded(Exception):
    """A loop returned without being asked to stop."""


class Supervisor:
    """Keeps one part running until it is asked to stop."""

    def __init__(
        self,
        build: PartFactory,
        *,
        service: Service,
        name: str,
        uses_part_name: bool,
        prefixes_checks: bool,
        restart: Backoff | None,
        observe: PartObserver = lambda failure: None,
    ) -> None:
        """If the supervisor `uses_part_name`, `name` is replaced by the part's own as soon as it is built.

        If it `prefixes_checks`, the part's check `poll` is shown as `<name>.poll`.
        """
        self.name = name
        self.stopping = service.stopping.child()
        self.first_attempt_done = asyncio.Event()
        """Set when the first attempt to start has succeeded or failed."""
        self._build = build
        self._service = service
        self._uses_part_name = uses_part_name
        self._prefixes_checks = prefixes_checks
        self._restart = restart
        self._observe = observe
        self._part: Part | None = None
        self._problem: str | None = "starting"
        self._is_retired = False
        self._close_lock = asyncio.Lock()

    def register(self) -> None:
        """Show the part in readiness, replacing an earlier part of this name."""
        self._service.health.add(readiness={self.name: self._readiness})

    def retire(self, *, is_replaced: bool) -> None:
        """Ask this part alone to stop, permanently.

        Its checks are removed now and not when it has ended: a loop that stops on purpose would fail the liveness
        probe, and the process would be killed. The name stays registered only if the part `is_replaced`.
        """
        self._is_retired = True
        self._remove_checks()
        if not is_replaced:
            self._service.health.remove(self.name)
        self.stopping.request()

    async def run(self) -> None:
        """Return when the part has stopped, or has failed and is not built again. It is not closed yet."""
        service, restart = self._service, self._restart
        failures = 0
        while not self.stopping.requested:
            started_at = asyncio.get_running_loop().time()
            try:
                await self._run_part()
                return
            except Exception as error:
                failure = _unwrap_groups(error)
            finally:
                was_starting = self._problem is not None
                self.first_attempt_done.set()
            if self._is_retired:
                service.log.exception("part.failed", name=self.name, error=failure)
                return
            if restart is None or self.stopping.requested:
                service.fail(self.name, failure, while_starting=was_starting)
                return
            await self.close()
            uptime = timedelta(seconds=asyncio.get_running_loop().time() - started_at)
            failures = 1 if uptime > restart.maximum else failures + 1
            delay = restart.delay(failures - 1, service.jitter())
            self._problem = f"failure {failures} in a row: {describe(failure)}"
            service.log.exception("part.failed", name=self.name, error=failure, failures=failures, retry_in=delay)
            self._observe(failure)
            await self.stopping.interrupts(asyncio.sleep(delay.total_seconds()))

    async def close(self) -> None:
        """Close the part that was built last, if it is open. Returns when it is closed, even by another task."""
        async with self._close_lock:
            part = self._part
            if part is None:
                return
            self._remove_checks()
            self._part = None
            if self._service.metrics is not None and part.registry is not None:
                self._service.metrics.discard(part.registry)
            if part.close is not None:
                await self._service.close(self.name, part.close)

    async def _run_part(self) -> None:
        self._problem = self._problem or "starting"
        built = self._build()
        part = self._part = built if isinstance(built, Part) else await built
        self._add_checks_and_metrics(part)
        if part.start is not None and await self.stopping.interrupts(_call(part.start)):
            return
        self._problem = None
        self.first_attempt_done.set()
        self._observe(None)
        async with asyncio.TaskGroup() as group:
            for loop in part.loops:
                group.create_task(self._run_loop(loop, part), name=f"{self.name}:{_loop_name(loop)}")

    def _add_checks_and_metrics(self, part: Part) -> None:
        service = self._service
        if service.metrics is not None and part.registry is not None:
            service.metrics.add(part.registry)
        if self._is_retired:
            return
        if self._uses_part_name:
            service.health.remove(self.name)
            self.name = part.name
            self.register()
        service.health.add(
            readiness={self._check_name(name): check for name, check in part.checks.items()},
            liveness={self._check_name(name): check for name, check in part.liveness.items()},
        )

    async def _run_loop(self, loop: Loop, part: Part) -> None:
        try:
            await loop(self.stopping)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                # Some libraries let the cancellation of their own task escape. A task group takes it for its own
                # and ignores it, so the loop would end unnoticed.
                raise LoopEnded(f"{_loop_name(loop)} was cancelled, but not by the lifecycle") from error
            raise
        if not part.is_finite and not self.stopping.requested:
            raise LoopEnded(f"{_loop_name(loop)} returned although it was not asked to stop")

    def _readiness(self) -> str | None:
        return "being replaced" if self._is_retired else self._problem

    def _remove_checks(self) -> None:
        if self._part is not None:
            self._service.health.remove(*map(self._check_name, (*self._part.checks, *self._part.liveness)))

    def _check_name(self, check: str) -> str:
        return f"{self.name}.{check}" if self._prefixes_checks else check


class RunningParts:
    """The parts of a run that have been started, each with its task. They drain together and close in reverse."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: dict[Supervisor, asyncio.Task[None]] = {}

    @property
    def in_order(self) -> Sequence[Supervisor]:
        """In order of start."""
        return tuple(self._tasks)

    def start(self, part: Supervisor) -> asyncio.Task[None]:
        """Start a part. Its task ends when the part has stopped or has failed permanently."""
        part.register()
        task = self._tasks[part] = asyncio.create_task(part.run(), name=part.name)
        return task

    async def wait(self) -> None:
        """Return when no part runs any more, including parts that are started meanwhile."""
        while pending := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(pending)

    async def drain(self, parts: Sequence[Supervisor]) -> None:
        """Wait until these parts, which were asked to stop, have ended, at most for the drain timeout."""
        await self._wait(parts, self._service.drain_timeout, event="drain.expired")

    async def close(self, parts: Sequence[Supervisor]) -> None:
        """Cancel these parts and close them in reverse order of start."""
        for task in self._running(parts):
            task.cancel()
        await self._wait(parts, self._service.close_timeout, event="cancel.ignored")
        for part in reversed(parts):
            await part.close()
            self._service.stopping.release(part.stopping)
            self._tasks.pop(part, None)

    async def _wait(self, parts: Sequence[Supervisor], timeout: timedelta, *, event: str) -> None:
        if running := self._running(parts):
            await asyncio.wait(running, timeout=timeout.total_seconds())
        if names := [part.name for part in self._running(parts).values()]:
            self._service.log.warning(event, parts=names, after=timeout)

    def _running(self, parts: Sequence[Supervisor]) -> dict[asyncio.Task[None], Supervisor]:
        """Return the tasks that still run. A part that is being removed while the service stops may be gone."""
        tasks = {self._tasks[part]: part for part in parts if part in self._tasks}
        return {task: part for task, part in tasks.items() if not task.done()}


async def _call(hook: Hook) -> None:
    await hook()


def _unwrap_groups(error: Exception) -> Exception:
    """Return the failure without the task groups around it. A group remains only if several tasks failed."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _loop_name(loop: Loop) -> str:
    return getattr(loop, "__qualname__", None) or type(loop).__qualname__
