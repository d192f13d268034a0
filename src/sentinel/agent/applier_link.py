"""Between the hub and the applier: hands over what the hub wants, fetches it, and delivers reports."""

from __future__ import annotations

from typing import assert_never

from sentinel.agent.applier import Applier
from sentinel.agent.observer import AgentObserver
from sentinel.core.agent.orders import Content, Order, OrderKey, Report, ReportState, Source, Task
from sentinel.ports.hub_client import (
    AssignmentNotice,
    CallRefused,
    DeploymentNotice,
    DeploymentProgress,
    DeploymentReport,
    FailureReason,
    HubClient,
    Instruction,
    ReportRequest,
    Session,
)


class ApplierLink:
    """Everything that concerns configurations. Calls raise what `HubClient` raises, except `CallRefused`."""

    def __init__(self, *, client: HubClient, applier: Applier, observer: AgentObserver) -> None:
        self._client = client
        self._applier = applier
        self._observer = observer

    def begin(self, session: Session) -> None:
        """Hand over what is assigned at registration. The applier compares it with what runs."""
        if session.assigned_version:
            self._applier.receive(
                Task(version=session.assigned_version, hash=session.assigned_hash, source=Source.REGISTRATION)
            )

    def receive(self, notice: AssignmentNotice | DeploymentNotice | ReportRequest, *, is_event: bool) -> None:
        """Hand over what the hub asks for. Repeating it changes nothing."""
        source = Source.EVENT if is_event else Source.ACTION
        match notice:
            case AssignmentNotice(version=""):
                pass  # nothing is assigned any more: what runs goes on
            case AssignmentNotice():
                self._applier.receive(
                    Task(version=notice.version, hash=notice.hash, source=source, marker=notice.id)
                )
            case DeploymentNotice():
                order = Order(
                    deployment_id=notice.deployment_id, is_rollback=notice.is_rollback, deadline=notice.deadline
                )
                self._applier.receive(
                    Task(version=notice.version, hash=notice.hash, order=order, source=source, marker=notice.id)
                )
            case ReportRequest():
                self._applier.report_again(OrderKey(notice.deployment_id, notice.is_rollback))
            case _:
                assert_never(notice)

    async def exchange(self) -> bool:
        """Deliver reports, then fetch what is wanted. Returns whether the hub wants a heartbeat."""
        is_asked = await self.deliver_reports()
        await self.fetch_wanted()
        return is_asked

    async def fetch_wanted(self) -> None:
        """Fetch until nothing is wanted."""
        before: Task | None = None
        while (task := self._applier.wanted) is not None and task != before:
            before = task
            try:
                content = await self._fetch(task)
            except CallRefused as refused:
                self._observer.fetched(task.version, refused)
                self._applier.cannot_fetch(task, f"the hub does not hand out {task.version}: {refused}")
                continue
            self._observer.fetched(task.version, None)
            if content.version == task.version:
                self._applier.supply(task, content)
            else:
                # Asking again would bring the same version.
                self._applier.cannot_fetch(task, f"the hub sent another version instead of {task.version}")

    async def deliver_reports(self) -> bool:
        """Deliver reports in order. Returns whether the hub wants a heartbeat, whose answer says where to go back
        to."""
        is_asked = False
        before: Report | None = None
        while (pending := self._applier.pending_reports) and pending[0] != before:
            report = before = pending[0]
            instruction = await self._deliver(report)
            is_asked = is_asked or instruction is Instruction.ROLLBACK
            self._applier.delivered(report, is_over=instruction is Instruction.STOP)
        return is_asked

    async def _fetch(self, task: Task) -> Content:
        is_rollback = task.order is not None and task.order.is_rollback
        fetch = self._client.config_version if is_rollback else self._client.config
        fetched = await fetch(task.version)
        return Content(
            version=fetched.version, hash=fetched.hash, content=fetched.content, secrets=fetched.secrets
        )

    async def _deliver(self, report: Report) -> Instruction:
        try:
            instruction = await self._send(report)
        except CallRefused as refused:
            # It would be refused again and again. Without such a deployment, nothing has to be done for it.
            is_over = refused.reason is FailureReason.NOT_FOUND
            instruction = Instruction.STOP if is_over else Instruction.NONE
            self._observer.reported(report, instruction, refused)
        else:
            self._observer.reported(report, instruction, None)
        return instruction

    async def _send(self, report: Report) -> Instruction:
        order = report.order
        if report.state.is_acknowledgement:
            return await self._client.acknowledge(
                order.deployment_id,
                is_rollback=order.is_rollback,
                is_accepted=report.state is ReportState.ACCEPTED,
                rejection_reason=report.message if report.state is ReportState.REJECTED else "",
            )
        return await self._client.report(
            DeploymentReport(
                deployment_id=order.deployment_id,
                is_rollback=order.is_rollback,
                state=DeploymentProgress(report.state.value),
                message=report.message,
                error_details=report.details,
            )
        )
