"""The deployments of the hub, for the live view and for activities such as a new batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sentinel.cli.hub import deployment_progress
from sentinel.cli.hub.client import HubApiClient
from sentinel.cli.hub.deployment_progress import Progress
from sentinel.cli.up.activity import Activity, ActivityLevel, OnActivity
from sentinel.cli.up.dashboard_state import DashboardState
from sentinel.core.hub.versions import VersionName
from sentinel.hub.deployment_documents import DeploymentDocument
from sentinel.ports.clock import Clock

_NEWEST: Final = 5
"""How many deployments are looked at. Older ones are over, or many run at the same time."""

_BAD_WORDS: Final = ("fail", "timed out", "rejected", "aborted", "violat", "rollback")


class DeploymentActivities:
    """Reads the newest deployments, updates the dashboard and emits what happens in them."""

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
        self._known: Mapping[str, Progress] | None = None

    async def poll(self, client: HubApiClient) -> None:
        """Read once. Raises `ServerError`."""
        newest = await client.newest_deployments(_NEWEST)
        before = self._known
        self._known = now = {each.id: await self._read(client, each) for each in newest}
        self._dashboard.deployment = next(iter(now.values()), None)
        if before is None:
            return  # the first poll has nothing to compare with
        for each in reversed(newest):
            for text in deployment_progress.changes(before.get(each.id), now[each.id]):
                self._emit(each, text)

    async def _read(self, client: HubApiClient, deployment: DeploymentDocument) -> Progress:
        """Return the deployment with its targets. Those of one that is over are not read again."""
        known = None if self._known is None else self._known.get(deployment.id)
        if known is not None and known.is_over and known.deployment == deployment:
            return known
        rows = {each.instance_id: each for each in await client.deployment_instances(deployment.id)}
        return Progress(deployment=deployment, rows=rows)

    def _emit(self, deployment: DeploymentDocument, text: str) -> None:
        is_bad = any(word in text.lower() for word in _BAD_WORDS)
        activity = Activity(
            at=self._clock.now(),
            source="rollout",
            resource_id=deployment.id,
            name=str(VersionName(deployment.config_id, deployment.version)),
            text=text.removeprefix(f"{deployment.id}: "),
            level=ActivityLevel.ERROR if is_bad else ActivityLevel.INFO,
        )
        self._on_activity(activity)
