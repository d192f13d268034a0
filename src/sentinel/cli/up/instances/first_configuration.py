"""Assigns a first configuration to new instances, so that a newcomer sees something that works.

It is an ordinary client of the hub. What a user has assigned is never replaced. An instance that has nothing
assigned gets what most of the others run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Final

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.hub.client import HubApiClient
from sentinel.cli.up.activity import Activity, ActivityLevel, OnActivity
from sentinel.cli.up.instances.configurations import CONFIG_ID
from sentinel.core.hub import versions
from sentinel.core.hub.states import CONNECTED
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping

_INTERVAL: Final = timedelta(seconds=1)


class FirstConfiguration:
    """Saves the configuration if it does not exist, and assigns it to instances as they register."""

    def __init__(
        self,
        *,
        connect: Callable[[], ServerConnection],
        instances: Collection[str],
        content: str,
        on_activity: OnActivity,
        clock: Clock,
    ) -> None:
        """`instances` are the ids of those that get it. Others are left alone."""
        self._connect = connect
        self._waiting = set(instances)
        self._content = content
        self._on_activity = on_activity
        self._clock = clock
        self._is_saved = False
        self.done = asyncio.Event()
        """Set once all have something assigned, or the hub has refused the configuration."""

    def part(self) -> Part:
        """Return the part, which has nothing more to do once all have an assignment."""
        return Part(name="first configuration", loops=(self.run,))

    async def run(self, stopping: Stopping) -> None:
        """Assign until each instance has something assigned. Errors are tried again."""
        async with self._connect() as connection:
            client = HubApiClient(connection)
            while self._waiting:
                if await stopping.interrupts(self._attempt(client)):
                    return
                if self._waiting and await stopping.interrupts(self._clock.sleep(_INTERVAL)):
                    return
        self.done.set()
        await stopping.wait()

    async def _attempt(self, client: HubApiClient) -> None:
        try:
            await self._save(client)
            known = await client.instances()
            for instance in known:
                if instance.id in self._waiting and instance.state in CONNECTED:
                    if instance.assigned is None:
                        await client.assign(instance.id, _version_for_newcomers(known))
                    self._waiting.discard(instance.id)
        except ServerError:
            return  # an instance that is being deployed to, or a hub that does not serve yet

    async def _save(self, client: HubApiClient) -> None:
        if self._is_saved:
            return
        try:
            await client.create(CONFIG_ID, self._content, "What new instances begin with")
        except RequestRejected as rejected:
            if rejected.status != HTTPStatus.CONFLICT:
                if not rejected.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                self._emit(f"cannot save the configuration {CONFIG_ID}: {rejected}", ActivityLevel.ERROR)
                self._waiting.clear()
                return
        else:
            self._emit(f"saves the configuration {CONFIG_ID}", ActivityLevel.INFO)
        self._is_saved = True

    def _emit(self, text: str, level: ActivityLevel) -> None:
        self._on_activity(Activity(at=self._clock.now(), source="up", text=text, level=level))


def _version_for_newcomers(instances: Sequence[InstanceDocument]) -> VersionName:
    """Return the version that most instances are assigned; the first if none is assigned any."""
    assigned = Counter(
        name
        for each in instances
        if each.assigned is not None
        and (name := versions.parse(each.assigned)) is not None
        and name.config_id == CONFIG_ID
    )
    return max(assigned, key=lambda name: (assigned[name], name)) if assigned else VersionName(CONFIG_ID, 1)
