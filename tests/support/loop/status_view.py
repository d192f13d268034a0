"""How a resource stands and what was reported on it, read from the API's answers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tests.support.fleet.http_client import Body


class Report(msgspec.Struct, frozen=True):
    """What the API says of an adapter's report."""

    adapter: str
    generation: int
    time: datetime
    """When the adapter says it looked."""
    statuses: tuple[str, str, str]
    """`Applied`, `Available`, `Health`."""
    reason: str
    """That of `Available`."""
    is_taken: bool


class Standing(msgspec.Struct, frozen=True):
    """How the API says a resource is."""

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


def read_standing(body: Body) -> Standing:
    """From a resource, as the API shows it."""
    status = body["status"]
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    return Standing(
        generation=body["generation"],
        observed_generation=status["observed_generation"],
        ready=conditions["Ready"]["status"],
        available=conditions["Available"]["status"],
        available_generation=conditions["Available"]["observed_generation"],
        last_updated_time=datetime.fromisoformat(status["last_updated_time"]),
        last_transition_time=datetime.fromisoformat(status["last_transition_time"]),
    )


def read_report(item: Body, time: str, *, is_taken: bool) -> Report:
    """From a report, as the API lists it; `time` is the one at which it was observed."""
    conditions = {condition["type"]: condition for condition in item["conditions"]}
    return Report(
        adapter=item["adapter"],
        generation=item["observed_generation"],
        time=datetime.fromisoformat(time),
        statuses=(
            conditions["Applied"]["status"],
            conditions["Available"]["status"],
            conditions["Health"]["status"],
        ),
        reason=conditions["Available"]["reason"],
        is_taken=is_taken,
    )
