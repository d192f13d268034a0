"""One part's life: built, started, run, built again after a failure, and closed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.part import Loop, Part, PartFactory
from sentinel.runtime.lifecycle.service import Service
from sentinel.runtime.log_format import describe


class LoopEnded(Exception):
    """A loop returned although it was not asked to stop."""


class Supervisor:
    """Keeps one part running until it is asked to stop."""

    def __init__(
        self,
        build: PartFactory,
        *,
        service: Service,
        name: str,
        adopts_name: bool,
        qualifies_checks: bool,
        restart: Backoff | None,
    ) -> None:
        """`name` stands until the part is built where the supervisor `adopts_name`, and for good otherwise.

        Where it `qualifies_checks`, the part's check `poll` is shown as `<name>.poll`.
        """
        self.name = name
        self.stopping = service.stopping.child()
        self.attempted = asyncio.Event()
        """Set once the first attempt to start has succeeded or failed."""
        self._build = build
        self._service = service
        self._adopts_name = adopts_name
        self._qualifies_checks = qualifies_checks
        self._restart = restart
        self._part: Part | None = None
        self._trouble: str | None = "starting"
        self._is_retired = False
        self._one_closes = asyncio.Lock()

    def announce(self) -> None:
        """Shows the part in readiness, in place of an earlier part of this name."""
        self._service.health.add(readiness={self.name: self._readiness})

    def retire(self, *, is_replaced: bool) -> None:
        """Asks this part alone to stop, for good.

        Its checks are forgotten now, not when it has ended: a loop that stops on purpose would fail the liveness
        probe, and the process would be killed for it. Only where the part `is_replaced` its name stays.
        """
        self._is_retired = True
        self._forget_checks()
        if not is_replaced:
            self._service.health.forget(self.name)
        self.stopping.request()

    async def run(self) -> None:
        """Returns when the part has stopped, or has failed and is not built again. It is not closed yet."""
        service, restart = self._service, self._restart
        failures = 0
        while not self.stopping.requested:
            began = asyncio.get_running_loop().time()
            try:
                await self._live()
                return
            except Exception as error:
                failure = _innermost(error)
            finally:
                was_starting = self._trouble is not None
                self.attempted.set()
            if self._is_retired:
                service.log.exception("part.failed", name=self.name, error=failure)
                return
            if restart is None or self.stopping.requested:
                service.fail(self.name, failure, while_starting=was_starting)
                return
            await self.close()
            lived = timedelta(seconds=asyncio.get_running_loop().time() - began)
            failures = 1 if lived > restart.maximum else failures + 1
            wait = restart.delay(failures - 1, service.jitter())
            self._trouble = f"failure {failures} in a row: {describe(failure)}"
            service.log.exception("part.failed", name=self.name, error=failure, failures=failures, retry_in=wait)
            await self.stopping.interrupts(asyncio.sleep(wait.total_seconds()))

    async def close(self) -> None:
        """Closes the part that was built last, if it is open. Returns when it is closed, also by another task."""
        async with self._one_closes:
            part = self._part
            if part is None:
                return
            self._forget_checks()
            self._part = None
            if self._service.metrics is not None and part.registry is not None:
                self._service.metrics.discard(part.registry)
            if part.close is not None:
                await self._service.close(self.name, part.close)

    async def _live(self) -> None:
        self._trouble = self._trouble or "starting"
        built = self._build()
        part = self._part = built if isinstance(built, Part) else await built
        self._show(part)
        if part.start is not None:
            await part.start()
        self._trouble = None
        self.attempted.set()
        async with asyncio.TaskGroup() as loops:
            for loop in part.loops:
                loops.create_task(self._keep(loop, part), name=f"{self.name}:{_name(loop)}")

    def _show(self, part: Part) -> None:
        service = self._service
        if service.metrics is not None and part.registry is not None:
            service.metrics.add(part.registry)
        if self._is_retired:
            return
        if self._adopts_name:
            service.health.forget(self.name)
            self.name = part.name
            self.announce()
        service.health.add(
            readiness={self._qualified(name): check for name, check in part.checks.items()},
            liveness={self._qualified(name): check for name, check in part.liveness.items()},
        )

    async def _keep(self, loop: Loop, part: Part) -> None:
        try:
            await loop(self.stopping)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                # Some libraries let the cancellation of a task of their own escape. A task group takes it for its
                # own and stays silent, so the loop would be gone unnoticed.
                raise LoopEnded(f"{_name(loop)} ended in a cancellation that nobody had asked for") from error
            raise
        if not part.is_finite and not self.stopping.requested:
            raise LoopEnded(f"{_name(loop)} returned although nobody had asked it to stop")

    def _readiness(self) -> str | None:
        return "being replaced" if self._is_retired else self._trouble

    def _forget_checks(self) -> None:
        if self._part is not None:
            self._service.health.forget(*map(self._qualified, (*self._part.checks, *self._part.liveness)))

    def _qualified(self, check: str) -> str:
        return f"{self.name}.{check}" if self._qualifies_checks else check


def _innermost(error: Exception) -> Exception:
    """The failure itself, without the task groups around it; a group only where several failed at once."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _name(loop: Loop) -> str:
    return getattr(loop, "__qualname__", None) or type(loop).__qualname__
