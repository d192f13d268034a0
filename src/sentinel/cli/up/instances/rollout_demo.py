"""The rollouts of `sentinel up --demo`: a good configuration and a bad one, each through a canary.

It is an ordinary client of the hub. The bad configuration passes every check: it sends requests to a release of
the application that fails only when it is used. So nothing but the metrics of the canary can stop it, and does.

It saves each of its texts once and deploys them again and again. An instance that runs anything else, because a
user has assigned it, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from itertools import count
from typing import Any, Final

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.hub.client import HubApiClient
from sentinel.cli.up.activity import Activity, ActivityLevel, OnActivity
from sentinel.cli.up.instances import configurations
from sentinel.cli.up.instances.configurations import CONFIG_ID
from sentinel.cli.up.instances.ports import Ports
from sentinel.core.hub.rollout_state import TERMINAL, RollbackState
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName, content_hash
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.hub.deployment_documents import DeploymentDocument
from sentinel.ports.clock import Clock
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping

POLL_INTERVAL: Final = timedelta(seconds=1)
PAUSE: Final = timedelta(seconds=20)
"""Between a rollout and the next one, to read what has happened."""
REST: Final = timedelta(minutes=2)
"""The pause after a good and a bad deployment."""

_MIN_INSTANCES: Final = 2
"""A canary, and one that it is compared with."""
READINESS_ATTEMPTS: Final = 60
"""How often to look whether all instances are ready, before deploying to those that are."""
_GREETINGS: Final = ("good morning", "good evening")

STRATEGY: Final[Mapping[str, Any]] = {
    "strategy": "canary",
    "order": {"spread_by": "zone"},
    "progress_deadline": "5m",
    "canary": {
        "instances": 1,
        "duration": "15s",
        "interval": "3s",
        "min_requests": 20,
        "success_criteria": [{"metric": "error_rate", "max": 0.05}],
    },
    "rolling": {"batch_size": 2, "batch_delay": "3s"},
}
"""Short enough to watch."""


class RolloutDemo:
    """A user of the hub who deploys a good and a bad configuration in turn."""

    def __init__(
        self,
        *,
        connect: Callable[[], ServerConnection],
        instances: Collection[str],
        ports: Ports,
        on_activity: OnActivity,
        clock: Clock,
    ) -> None:
        """`instances` are the ids of those that it may deploy to."""
        self._connect = connect
        self._instances = instances
        self._first = configurations.forwarding(ports)
        self._good = [configurations.forwarding(ports, greeting=greeting) for greeting in _GREETINGS]
        self._bad = configurations.forwarding(ports, greeting="oops", upstream_port=ports.next_upstream)
        self._on_activity = on_activity
        self._clock = clock

    def part(self) -> Part:
        """Return the part."""
        return Part(name="rollout demo", loops=(self.run,))

    async def run(self, stopping: Stopping) -> None:
        """Deploy until stopped. Errors are shown, and it tries again later."""
        async with self._connect() as connection:
            client = HubApiClient(connection)
            await stopping.interrupts(self._run(client))

    async def _run(self, client: HubApiClient) -> None:
        while True:
            await self._until_deployed(client, self._good, "a good configuration")
            await self._clock.sleep(PAUSE)
            await self._until_deployed(client, [self._bad], "a bad configuration, which passes every check")
            await self._clock.sleep(REST)

    async def _until_deployed(self, client: HubApiClient, texts: Sequence[str], what: str) -> None:
        """Wait for all instances, after a while only for a few, and deploy to those that are ready."""
        for attempt in count():
            needed = _MIN_INSTANCES if attempt >= READINESS_ATTEMPTS else len(self._instances)
            if await self._deploy(client, texts, what, needed=max(needed, _MIN_INSTANCES)):
                return
            await self._clock.sleep(POLL_INTERVAL)

    async def _deploy(self, client: HubApiClient, texts: Sequence[str], what: str, *, needed: int) -> bool:
        """Deploy the first of these texts that does not run yet, and wait for the end. Return whether it began."""
        try:
            numbers = await self._save_missing(client, [self._first, *self._good, self._bad])
            ids, running = await self._own(client, numbers.values())
            number = next((numbers[text] for text in texts if numbers[text] not in running), None)
            if number is None or len(ids) < needed:
                return False
            body = {"config_id": CONFIG_ID, "version": number, "targets": {"ids": ids}, **STRATEGY}
            created = await client.deploy(body)
            self._emit(f"deploys {what}: {CONFIG_ID}@{number}", ActivityLevel.INFO)
            ended = await self._until_over(client, created.id)
        except RequestRejected as rejected:
            if rejected.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                self._emit(f"cannot deploy: {rejected}", ActivityLevel.ERROR)
            return False  # the first configuration is not saved yet, or a user deploys to these instances
        except ServerError:
            return False
        rollback = "" if ended.rollback is RollbackState.NONE else f", rollback {ended.rollback}"
        self._emit(f"sees {CONFIG_ID}@{number} {ended.state}{rollback}", ActivityLevel.INFO)
        return True

    async def _save_missing(self, client: HubApiClient, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the version of each text, and save those that are missing."""
        known = {each.hash: each.version for each in await client.versions(CONFIG_ID)}
        found: dict[str, int] = {}
        for text in texts:
            number = known.get(content_hash(text))
            if number is None:
                saved = await client.add_version(CONFIG_ID, "From the demo", content=text)
                number = saved.version
            found[text] = number
        return found

    async def _own(self, client: HubApiClient, numbers: Collection[int]) -> tuple[list[str], set[int]]:
        """Return the instances that are ready and run one of our versions, and what they run."""
        ours = {str(VersionName(CONFIG_ID, number)): number for number in numbers}
        found = [
            each
            for each in await client.instances()
            if each.id in self._instances and each.state is State.ONLINE and each.in_sync and each.assigned in ours
        ]
        return [each.id for each in found], {ours[each.assigned] for each in found if each.assigned is not None}

    async def _until_over(self, client: HubApiClient, deployment_id: str) -> DeploymentDocument:
        while True:
            found = await client.deployment(deployment_id)
            is_over = found.state in TERMINAL and found.finished_time is not None
            if is_over and found.rollback is not RollbackState.RUNNING:
                return found
            await self._clock.sleep(POLL_INTERVAL)

    def _emit(self, text: str, level: ActivityLevel) -> None:
        self._on_activity(Activity(at=self._clock.now(), source="demo", text=text, level=level))
