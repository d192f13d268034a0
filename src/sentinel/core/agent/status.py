"""What a heartbeat says about the configuration: what runs, and what people should know about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from sentinel.core.agent.orders import Running
from sentinel.core.agent.state import AgentState, Applied
from sentinel.core.hub.instance import Health

RESTART_REQUIRED: Final = "restart required"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The file and the proxy, as they are."""

    path: str
    """The path of the file."""
    file_hash: str = ""
    """Empty if there is no file, or it cannot be read."""
    file_problem: str = ""
    """Why it cannot be read."""
    modified: datetime | None = None
    """When the file was last changed."""
    differences: tuple[str, ...] = ()
    """What is different from the applied version, such as `routes "api"`. Empty: only its layout, or unknown."""
    health_problem: str = ""
    """Why the proxy is not healthy; empty if it is, or was not checked yet."""
    state_problem: str = ""
    """Why the agent cannot save its state."""


def running(state: AgentState, observed: Observation) -> Running:
    """Return what a heartbeat says."""
    applied, file_hash = state.applied, observed.file_hash
    if state.apply is not None:
        # What is in the file is not known to work yet.
        file_hash = "" if applied is None else applied.hash
    elif applied is not None and file_hash == applied.file_hash:
        file_hash = applied.hash
    return Running(
        version="" if applied is None else applied.version,
        hash=file_hash,
        message="; ".join(_messages(state, observed)),
        health=_health(state, observed),
    )


def is_changed_by_hand(applied: Applied, observed: Observation) -> bool:
    """Whether the file is not what the agent has written."""
    return observed.file_hash != applied.file_hash


def _health(state: AgentState, observed: Observation) -> Health:
    if observed.health_problem:
        return Health.UNHEALTHY
    return Health.DEGRADED if state.restore_failure else Health.HEALTHY


def _messages(state: AgentState, observed: Observation) -> Iterator[str]:
    if state.attempt is not None and state.attempt.failure:
        yield f"{state.attempt.version}: {state.attempt.failure}"
    applied = state.applied
    if applied is not None and state.apply is None and is_changed_by_hand(applied, observed):
        yield (
            _unrestored(applied, observed, state.restore_failure)
            if state.restore_failure
            else _drift(applied, observed)
        )
    if applied is not None and applied.lacks_restart is not None:
        yield RESTART_REQUIRED
    if observed.health_problem:
        yield f"the proxy is not healthy: {observed.health_problem}"
    if observed.state_problem:
        yield observed.state_problem


def _unrestored(applied: Applied, observed: Observation, failure: str) -> str:
    """The agent has changed the file itself, and people must not look for someone else."""
    return f"{observed.path} is not {applied.version}, which could not be restored: {failure}"


def _drift(applied: Applied, observed: Observation) -> str:
    if observed.file_problem:
        return f"{observed.path} cannot be compared with {applied.version}: {observed.file_problem}"
    if not observed.file_hash:
        return f"{observed.path} is missing; it was {applied.version}"
    since = "" if observed.modified is None else f" since {observed.modified:%Y-%m-%dT%H:%M:%SZ}"
    what = f" ({', '.join(observed.differences)})" if observed.differences else ""
    return f"{observed.path} is not {applied.version}{since}, it was changed by hand{what}"
