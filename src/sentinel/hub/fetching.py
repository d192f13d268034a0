"""What agents fetch, and what they say about deployments.

An agent gets the version that is assigned to its instance, and those that were. About any other version it learns
nothing, not even whether it exists.
"""

from __future__ import annotations

from sentinel.core.hub.versions import VersionName
from sentinel.hub.deployments import Acknowledgement, Deployments, Progress
from sentinel.hub.refusals import denied, not_found
from sentinel.hub.registry import KnownInstance
from sentinel.hub.sessions import AgentCall, Sessions
from sentinel.hub.version_cache import VersionCache
from sentinel.ports.hub_store import ConfigVersion, HubStore


class Fetching:
    """The use cases of agents about configurations. Every one may raise `CallRefused` and `Unavailable`."""

    def __init__(
        self, *, store: HubStore, sessions: Sessions, versions: VersionCache, deployments: Deployments
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._versions = versions
        self._deployments = deployments

    async def assigned(self, call: AgentCall) -> ConfigVersion:
        """Return the version that is assigned to the instance."""
        session = await self._sessions.authenticate(call)
        with self._sessions.counted(session):
            return await self._assigned(session.known)

    async def version(self, call: AgentCall, name: VersionName | None) -> ConfigVersion:
        """Return a version that is or was assigned to this incarnation. None is what no version is called."""
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
            return found

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

    async def _assigned(self, known: KnownInstance) -> ConfigVersion:
        assignment = known.record.sync.assignment
        if assignment is None:
            raise not_found("no version is assigned to this instance")
        found = await self._versions.assigned(assignment)
        if found is None:
            raise not_found(f"{assignment.version} was deleted")
        known.told = assignment
        return found


def _known(answer: str | None) -> str:
    if answer is None:
        raise not_found("there is no such deployment of this instance")
    return answer
