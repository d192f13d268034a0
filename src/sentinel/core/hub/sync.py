"""Whether an instance runs what is assigned to it, and what a heartbeat tells it to do.

Hashes are compared, not names: the agent reports the hash of the file as it is, so a file that someone has edited
is not in sync.

The actions of a heartbeat are derived from the desired state every time and repeated until they are done. An agent
that never gets an event of its stream reaches the same state, only later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from sentinel.core.hub.instance import DrainCause, Instance
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The version that an instance has to run."""

    version: VersionName
    hash: str
    assigned: datetime
    """When it was assigned. To assign the same version once more is another assignment."""
    must_fetch: bool = False
    """Whether the agent has to fetch it even if it runs it: a secret that the version names has changed."""


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance has to run, and what it says it runs."""

    assignment: Assignment | None = None
    reported_hash: str = ""
    """Empty: it has not reported one."""
    last_in_sync: datetime | None = None
    """The last time at which it was known to be in sync; None if it never was."""

    @property
    def is_in_sync(self) -> bool:
        """Whether it runs what is assigned. Where nothing is assigned, anything may run."""
        return self.assignment is None or self.reported_hash == self.assignment.hash

    @property
    def has_update(self) -> bool:
        """Whether the agent should fetch the assigned version."""
        return self.assignment is not None and (not self.is_in_sync or self.assignment.must_fetch)

    def lag(self, now: datetime) -> timedelta | None:
        """Return how long it has not been in sync: since it last was, else since the assignment. None: it is."""
        if self.assignment is None or self.is_in_sync:
            return None
        return max(now - (self.last_in_sync or self.assignment.assigned), timedelta(0))


def assign(sync: Sync, assignment: Assignment | None, now: datetime) -> Sync:
    """Return the state with another assignment, or none.

    It is in sync until now if it was with the one before, or is with this one.
    """
    assigned = msgspec.structs.replace(sync, assignment=assignment)
    return _at(assigned, now) if sync.is_in_sync or assigned.is_in_sync else assigned


def offer_again(sync: Sync, now: datetime) -> Sync:
    """Return the state in which the agent has to fetch the assigned version once more."""
    if sync.assignment is None:
        return sync
    return msgspec.structs.replace(
        sync, assignment=msgspec.structs.replace(sync.assignment, assigned=now, must_fetch=True)
    )


def fetched(sync: Sync, assignment: Assignment) -> Sync:
    """Return the state after the agent has fetched what this assignment names, unless another one has followed."""
    if sync.assignment != assignment or not assignment.must_fetch:
        return sync
    return msgspec.structs.replace(sync, assignment=msgspec.structs.replace(assignment, must_fetch=False))


def report(sync: Sync, reported_hash: str, now: datetime) -> Sync:
    """Return the state after a heartbeat."""
    reported = msgspec.structs.replace(sync, reported_hash=reported_hash)
    return _at(reported, now) if reported.is_in_sync else reported


class DeploymentStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment in progress wants from one instance."""

    deployment_id: str
    version: VersionName
    hash: str
    is_rollback: bool = False
    deadline: datetime
    is_acknowledged: bool = False
    """Whether the agent has accepted or rejected it."""
    is_report_overdue: bool = False
    """Whether the agent should have reported by now."""


class ActionType(StrEnum):
    """What an agent can be told to do, by the names of the protocol."""

    FETCH_CONFIG = "FETCH_CONFIG"
    APPLY_CONFIG = "APPLY_CONFIG"
    REPORT_STATUS = "REPORT_STATUS"
    DRAIN = "DRAIN"


class Action(msgspec.Struct, frozen=True):
    """Something that the agent should do now."""

    type: ActionType
    id: str
    """The same in every heartbeat until it is done; another one for another assignment, deployment or drain."""
    params: Mapping[str, str]


def pending_actions(instance: Instance, sync: Sync, deployment: DeploymentStep | None = None) -> Sequence[Action]:
    """Return what a heartbeat tells the agent to do.

    An agent that drains gets no more configuration. During a deployment, that alone decides what is applied.
    """
    if instance.state is State.DRAINING:
        return [*_drain(instance)]
    if deployment is not None:
        return [*_deploy(deployment)]
    if sync.assignment is None or not sync.has_update or instance.deployment_id is not None:
        return []
    return [_fetch(sync.assignment)]


def _at(sync: Sync, now: datetime) -> Sync:
    return msgspec.structs.replace(sync, last_in_sync=now)


def _drain(instance: Instance) -> Iterator[Action]:
    drain = instance.drain
    if drain is None or drain.cause is not DrainCause.REQUESTED:
        return
    params = {"drain_timeout_seconds": str(drain.timeout_seconds)}
    yield Action(ActionType.DRAIN, f"drain/{_unix_microseconds(drain.started)}", params)


def _deploy(step: DeploymentStep) -> Iterator[Action]:
    rollback = "true" if step.is_rollback else "false"
    name = f"{step.deployment_id}/{'rollback' if step.is_rollback else 'deploy'}"
    target = {"deployment_id": step.deployment_id, "rollback": rollback}
    if not step.is_acknowledged:
        params = {
            "config_version": str(step.version),
            "config_hash": step.hash,
            "deadline": str(int(step.deadline.timestamp())),
        }
        yield Action(ActionType.APPLY_CONFIG, f"apply/{name}", target | params)
    elif step.is_report_overdue:
        yield Action(ActionType.REPORT_STATUS, f"report/{name}", target)


def _fetch(assignment: Assignment) -> Action:
    # An agent that failed to apply a version tries again only if it is assigned once more, so that has another id.
    action_id = f"fetch/{assignment.version}/{_unix_microseconds(assignment.assigned)}"
    params = {"config_version": str(assignment.version), "config_hash": assignment.hash}
    return Action(ActionType.FETCH_CONFIG, action_id, params)


def _unix_microseconds(time: datetime) -> int:
    return int(time.timestamp() * 1_000_000)
