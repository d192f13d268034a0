"""The instances of the hub, for the live view and for activities such as "is online"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sentinel.cli.hub.client import HubApiClient
from sentinel.cli.up.activity import Activity, ActivityLevel, OnActivity
from sentinel.cli.up.dashboard_state import DashboardState, InstancesState
from sentinel.core.hub.states import State
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.ports.clock import Clock

_PAGE_SIZE: Final = 200
"""More than a terminal can show."""

_LEVELS: Final[Mapping[State, ActivityLevel]] = {
    State.ONLINE: ActivityLevel.SUCCESS,
    State.DEGRADED: ActivityLevel.ERROR,
    State.OFFLINE: ActivityLevel.ERROR,
}


class InstanceActivities:
    """Reads the instances, updates the dashboard and emits changes."""

    def __init__(
        self,
        *,
        dashboard: DashboardState,
        on_activity: OnActivity,
        clock: Clock,
    ) -> None:
        self._dashboard = dashboard
        self._on_activity = on_activity
        self._clock = clock
        self._before: Mapping[str, InstanceDocument] | None = None

    async def poll(self, client: HubApiClient) -> None:
        """Read once. Raises `ServerError`."""
        instances, total = await client.first_instances(_PAGE_SIZE)
        self._dashboard.instances = InstancesState(tuple(instances), total)
        now = {each.id: each for each in instances}
        before, self._before = self._before, now
        if before is None:
            return  # the first poll has nothing to compare with
        for each in instances:
            for text, level in describe_changes(before.get(each.id), each):
                self._emit(each.id, text, level)
        if len(instances) == total:
            for instance_id in before.keys() - now.keys():
                self._emit(instance_id, "has left the fleet", ActivityLevel.SUCCESS)

    def _emit(self, instance_id: str, text: str, level: ActivityLevel) -> None:
        at = self._clock.now()
        self._on_activity(
            Activity(at=at, source="hub", resource_id=instance_id, name=instance_id, text=text, level=level)
        )


def describe_changes(
    before: InstanceDocument | None, now: InstanceDocument
) -> Iterator[tuple[str, ActivityLevel]]:
    """Yield what has become different about an instance since the last poll."""
    zone = now.labels.get("zone")
    if before is None:
        yield f"has registered{'' if zone is None else f' in zone {zone}'}", ActivityLevel.INFO
    elif before.state is not now.state:
        yield f"is {now.state}", _LEVELS.get(now.state, ActivityLevel.PENDING)
    if before is not None and before.assigned != now.assigned:
        yield f"is assigned {now.assigned or 'nothing'}", ActivityLevel.INFO
    was_in_sync = before is None or before.in_sync
    if now.in_sync and now.current is not None and now.assigned is not None:
        runs = now.current.version or now.assigned
        if not was_in_sync or before is None or before.current is None or before.current.hash != now.current.hash:
            yield f"runs {runs}", ActivityLevel.SUCCESS
    elif before is not None and before.in_sync and not now.in_sync and before.assigned == now.assigned:
        yield f"is out of sync with {now.assigned}", ActivityLevel.ERROR
    if now.message and (before is None or before.message != now.message):
        yield f"says: {now.message}", ActivityLevel.INFO if now.in_sync else ActivityLevel.ERROR
