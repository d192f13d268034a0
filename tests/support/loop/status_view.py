"""The status of a resource and the reports on it, as the API shows them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tests.support.fleet.http_client import Body


class ReportView(msgspec.Struct, frozen=True):
    """An adapter's report."""

    adapter: str
    generation: int
    time: datetime
    """The observed time."""
    statuses: tuple[str, str, str]
    """`Applied`, `Available`, `Health`."""
    reason: str
    """The reason of `Available`."""
    is_stored: bool


class StatusView(msgspec.Struct, frozen=True):
    generation: int
    observed_generation: int
    ready: str
    available: str
    available_generation: int
    last_updated_time: datetime
    last_transition_time: datetime

    @property
    def is_ready(self) -> bool:
        return self.ready == "True"


def read_status(body: Body) -> StatusView:
    status = body["status"]
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    return StatusView(
        generation=body["generation"],
        observed_generation=status["observed_generation"],
        ready=conditions["Ready"]["status"],
        available=conditions["Available"]["status"],
        available_generation=conditions["Available"]["observed_generation"],
        last_updated_time=datetime.fromisoformat(status["last_updated_time"]),
        last_transition_time=datetime.fromisoformat(status["last_transition_time"]),
    )


def read_report(item: Body, time: str, *, is_stored: bool) -> ReportView:
    """Read an entry of a list of reports; `time` is its observed time."""
    conditions = {condition["type"]: condition for condition in item["conditions"]}
    return ReportView(
        adapter=item["adapter"],
        generation=item["observed_generation"],
        time=datetime.fromisoformat(time),
        statuses=(
            conditions["Applied"]["status"],
            conditions["Available"]["status"],
            conditions["Health"]["status"],
        ),
        reason=conditions["Available"]["reason"],
        is_stored=is_stored,
    )
