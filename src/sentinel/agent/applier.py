"""Applies what the hub wants to the proxy, one version at a time, and keeps what the hub has to know about it.

The session with the hub hands over each task that it learns of, as often as it likes, and fetches what is
`wanted`. Everything that the applier has to say is state, not a message: what runs, and the reports that were not
delivered yet. Both outlive the process, so nothing is lost by a hub that is away or an agent that is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sentinel.core.agent.orders import Content, OrderKey, Report, ReportState, Running, Task
from sentinel.runtime.lifecycle.stopping import Stopping


class Applier:
    """Applies configurations to one proxy."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set whenever `running`, `pending_reports` or `wanted` has changed. The reader clears it."""
        self._wanted: Task | None = None
        self._reports: list[Report] = []

    async def run(self, stopping: Stopping) -> None:
        """Apply, one at a time, until stopped. An apply that has begun is finished.

        At the start it goes on with what an earlier process has begun.
        """
        await stopping.wait()

    def receive(self, task: Task) -> None:
        """Take note of what the hub wants. A task that is known already changes nothing.

        A newer task supersedes one that has not begun. An order is acknowledged by a report.
        """
        if task.order is not None:
            report = Report(order=task.order.key, state=ReportState.REJECTED, message="nothing can be applied yet")
            self._reports.append(report)
            self.changed.set()

    @property
    def wanted(self) -> Task | None:
        """The task whose content has to be fetched now, by its version; None if nothing has to be."""
        return self._wanted

    def supply(self, task: Task, content: Content) -> None:
        """Hand over the content of a wanted task. Ignored if it is not wanted any more."""

    def cannot_fetch(self, task: Task, reason: str) -> None:
        """Say that the hub refuses to hand out the content, for good. An unreachable hub is no reason."""

    @property
    def running(self) -> Running:
        """What the next heartbeat says, as last observed."""
        return Running()

    async def observe(self) -> Running:
        """Look at the file and the health of the proxy, and return what a heartbeat says now.

        During an apply, the apply decides whether the proxy is healthy.
        """
        return self.running

    @property
    def pending_reports(self) -> Sequence[Report]:
        """What the hub has not been told yet, in the order in which it has to be."""
        return tuple(self._reports)

    def delivered(self, report: Report, *, is_over: bool = False) -> None:
        """Take note that the hub has a report. `is_over`: it says that the deployment is over (`stop`)."""
        self._reports = [each for each in self._reports if each != report]

    def report_again(self, order: OrderKey) -> None:
        """Report once more how far an order is, because the hub asks for it."""

    async def drain(self) -> None:
        """Refuse everything new from now on. Returns when what is being applied has ended."""

    async def stop_proxy(self) -> str:
        """Stop the proxy, after what is being applied has ended. Returns why that failed, or an empty text."""
        return ""
