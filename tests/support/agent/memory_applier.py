"""An applier that keeps the configuration in memory and applies at once. For tests of the session with the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from sentinel.agent.applier import Applier
from sentinel.core.agent.orders import Content, OrderKey, Report, ReportState, Running, Task
from sentinel.core.hub.versions import content_hash
from sentinel.runtime.lifecycle.stopping import Stopping


class MemoryApplier(Applier):
    """Applies whatever it gets, unless its content is among `bad`."""

    def __init__(self, *, bad: Sequence[str] = ()) -> None:
        self.changed = asyncio.Event()
        self.bad = tuple(bad)
        self.tasks: list[Task] = []
        """All that it was told, once each."""
        self.contents: list[Content] = []
        self.secrets: dict[str, bytes] = {}
        self.is_drained = False
        self.stops = 0
        self.stop_timeout: timedelta | None = None
        self.stop_problem = ""
        self._text: str | None = None
        self._version = ""
        self._message = ""
        self._task: Task | None = None
        self._pending: list[Report] = []
        self._last_reports: dict[OrderKey, Report] = {}
        self._seen: set[tuple[object, ...]] = set()

    async def run(self, stopping: Stopping) -> None:
        await stopping.wait()

    def receive(self, task: Task) -> None:
        key = (task.version, task.hash) if task.order is None else (task.order.key,)
        if key in self._seen or (task.order is None and task.hash == self.running.hash):
            return
        self._seen.add(key)
        self.tasks.append(task)
        self._task = task
        if task.order is not None:
            self._report(task.order.key, ReportState.ACCEPTED)
        self.changed.set()

    @property
    def wanted(self) -> Task | None:
        return self._task

    def supply(self, task: Task, content: Content) -> None:
        if task != self._task:
            return
        self._task = None
        self.contents.append(content)
        if content.content in self.bad:
            self._message = f"{content.version}: health check failed after 3 attempts"
            self._finish(task, ReportState.FAILED, self._message)
        else:
            self._text, self._version, self._message = content.content, content.version, ""
            is_rollback = task.order is not None and task.order.is_rollback
            self._finish(task, ReportState.ROLLED_BACK if is_rollback else ReportState.COMPLETED)

    def cannot_fetch(self, task: Task, reason: str) -> None:
        self._task = None
        self._message = reason
        self._finish(task, ReportState.FAILED, reason)

    @property
    def running(self) -> Running:
        content = self._text
        return Running(
            version=self._version, hash="" if content is None else content_hash(content), message=self._message
        )

    async def observe(self) -> Running:
        return self.running

    @property
    def pending_reports(self) -> Sequence[Report]:
        return tuple(self._pending)

    def delivered(self, report: Report, *, is_over: bool = False) -> None:
        self._pending.remove(report)

    def report_again(self, order: OrderKey) -> None:
        self._pending.append(self._last_reports[order])
        self.changed.set()

    async def drain(self) -> None:
        self.is_drained = True

    async def stop_proxy(self, timeout: timedelta) -> str:
        self.stops += 1
        self.stop_timeout = timeout
        return self.stop_problem

    def _finish(self, task: Task, state: ReportState, message: str = "") -> None:
        if task.order is not None:
            self._report(task.order.key, state, message)
        self.changed.set()

    def _report(self, order: OrderKey, state: ReportState, message: str = "") -> None:
        report = self._last_reports[order] = Report(order=order, state=state, message=message)
        self._pending.append(report)
