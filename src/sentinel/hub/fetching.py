"""What agents fetch, and what they say about deployments.

An agent gets the version that is assigned to its instance, and those that were. About any other version it learns
nothing, not even whether it exists.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sentinel.core.hub import sync as syncing
from sentinel.core.hub.sync import Assignment
from sentinel.core.hub.versions import VersionName
from sentinel.hub import instance_changes
from sentinel.hub.deployments import Acknowledgement, Deployments, Progress
from sentinel.hub.refusals import denied, not_found
from sentinel.hub.registry import KnownInstance, Registry
from sentinel.hub.secrets import Secrets
from sentinel.hub.sessions import AgentCall, Sessions
from sentinel.hub.version_cache import VersionCache
from sentinel.ports.clock import Clock
from sentinel.ports.hub_store import ConfigVersion, HubStore, HubTransaction


class FetchedVersion(msgspec.Struct, frozen=True):
    """A version, with the values of the secrets that it names."""

    version: ConfigVersion
    secrets: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"FetchedVersion({self.version.config_id}@{self.version.version}, {len(self.secrets)} secrets)"


class Fetching:
    """The use cases of agents about configurations. Every one may raise `CallRefused` and `Unavailable`."""

    def __init__(
        self,
        *,
        store: HubStore,
        registry: Registry,
        sessions: Sessions,
        versions: VersionCache,
        secrets: Secrets,
        deployments: Deployments,
        clock: Clock,
    ) -> None:
        self._store = store
        self._registry = registry
        self._sessions = sessions
        self._versions = versions
        self._secrets = secrets
        self._deployments = deployments
        self._clock = clock

    async def assigned(self, call: AgentCall) -> FetchedVersion:
        """Return the version that is assigned to the instance."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            return await self._assigned(session.known)

    async def version(self, call: AgentCall, name: VersionName | None) -> FetchedVersion:
        """Return a version that is or was assigned to this incarnation. `name` is None if it is not valid."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            known = session.known
            assignment = known.record.sync.assignment
            if name is not None and assignment is not None and assignment.version == name:
                return await self._assigned(known)
            if name is None or not await self._store.was_assigned(known.id, known.life.incarnation, name):
                raise denied("the version was never assigned to this instance")
            found = await self._store.version(name)
            if found is None:
                raise not_found(f"{name} was deleted")
            # An earlier version gets no secret that the instance does not need now.
            allowed = () if assignment is None else (await self._assigned_version(assignment)).secrets
            return FetchedVersion(found, await self._secrets.for_instance(found.secrets, allowed))

    async def acknowledge(self, call: AgentCall, acknowledgement: Acknowledgement) -> str:
        """Take note of whether an agent accepts a deployment. Returns an instruction."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            instruction = await self._deployments.acknowledge(session.known.record, acknowledgement)
        return _known(instruction)

    async def report(self, call: AgentCall, progress: Progress) -> str:
        """Take note of how far a deployment is. Returns the next action."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            action = await self._deployments.report(session.known.record, progress)
        return _known(action)

    async def _assigned(self, known: KnownInstance) -> FetchedVersion:
        assignment = known.record.sync.assignment
        if assignment is None:
            raise not_found("no version is assigned to this instance")
        found = await self._assigned_version(assignment)
        secrets = await self._secrets.for_instance(found.secrets, found.secrets)
        if assignment.must_fetch:
            await self._note_fetched(known, assignment)
        known.told = assignment
        return FetchedVersion(found, secrets)

    async def _assigned_version(self, assignment: Assignment) -> ConfigVersion:
        found = await self._versions.assigned(assignment)
        if found is None:
            raise not_found(f"{assignment.version} was deleted")
        return found

    async def _note_fetched(self, known: KnownInstance, assignment: Assignment) -> None:
        """Stop telling the agent to fetch this assignment. Its secrets were read after the assignment was."""
        now = self._clock.now()

        def work(transaction: HubTransaction) -> None:
            stored = transaction.instance(known.id)
            if stored is None or stored.life.incarnation != known.life.incarnation:
                return
            after = msgspec.structs.replace(stored, sync=syncing.fetched(stored.sync, assignment))
            if after != stored:
                instance_changes.save(transaction, after, (), now)

        await self._store.transact(work)
        await self._registry.refresh(known.id)


def _known(answer: str | None) -> str:
    if answer is None:
        raise not_found("there is no such deployment of this instance")
    return answer
