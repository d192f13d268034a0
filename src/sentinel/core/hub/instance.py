"""The life of an instance, from its first Register until it is removed.

    instance, commands = advance(instance, Heartbeat(Health.HEALTHY, "serving"), now, timeouts)

`states.TRANSITIONS` has every change of state. An event sets off one trigger or several in a row. So an instance
that returns with problems is first online, then degraded, and both changes are reported.

Whether an agent has a stream says nothing about its state: agents work without one, and connections break for
other reasons. Only silence makes an instance offline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

import msgspec

from sentinel.core.hub.states import CONNECTED, TRANSITIONS, State, Trigger

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_RETURN: Final = timedelta(minutes=10)
"""How long all agents may need to come back to a hub that was away. They try at least every five minutes."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long what may last."""

    heartbeat_interval: timedelta = timedelta(seconds=30)
    """How often agents are told to send heartbeats."""
    offline_threshold: timedelta = timedelta(seconds=90)
    """How long an instance may be silent before it is offline."""
    drain_timeout: timedelta = timedelta(seconds=30)
    """How long an instance may drain before it is removed."""
    remove_after: timedelta = timedelta(hours=24)
    """How long an instance may be offline before it is drained."""


class DrainCause(StrEnum):
    """Why an instance leaves."""

    REQUESTED = "requested"
    """A user requested it. Heartbeats and the stream tell the agent until it deregisters."""
    DEREGISTERED = "deregistered"
    """The agent deregistered."""
    OFFLINE = "offline"
    """It was offline for too long."""


class Drain(msgspec.Struct, frozen=True):
    """How an instance leaves."""

    cause: DrainCause
    reason: str
    """The reason that the user or the agent gave."""
    started: datetime
    deadline: datetime
    """When it is removed, even if it does not deregister."""

    @property
    def timeout_seconds(self) -> int:
        """How long it may take in all. The protocol has whole seconds."""
        return math.ceil((self.deadline - self.started).total_seconds())


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What the states of an instance depend on. Before its first Register it is `Instance()`."""

    state: State = State.UNKNOWN
    since: datetime = _NEVER
    """When it entered this state."""
    incarnation: int = 0
    """How often the id was registered after it was new or removed."""
    session: int = 0
    """How often it was registered in this incarnation. Only the last session is valid."""
    registered: datetime = _NEVER
    """When this incarnation began."""
    last_seen: datetime = _NEVER
    """When it last registered or sent a heartbeat."""
    message: str = ""
    """What the agent last said about its status."""
    deployment_id: str | None = None
    """The deployment that is in progress."""
    drain: Drain | None = None
    """Set from draining on."""

    @property
    def may_be_assigned(self) -> bool:
        """Whether a version can be assigned by hand: it stays, and no deployment decides what runs."""
        is_leaving = self.state in (State.UNKNOWN, State.DRAINING, State.REMOVED)
        return not is_leaving and self.deployment_id is None


class Health(StrEnum):
    """What an agent says about its proxy."""

    UNKNOWN = "unknown"
    """It said nothing, or something that we do not know."""
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


class DeploymentOutcome(StrEnum):
    """How a deployment ended for one instance."""

    COMPLETED = "completed"
    FAILED = "failed"
    """It failed, was rejected or timed out, and is not rolled back."""
    ROLLED_BACK = "rolled_back"
    ROLLBACK_FAILED = "rollback_failed"


class Registered(msgspec.Struct, frozen=True):
    """The agent registered, with valid credentials."""


class Heartbeat(msgspec.Struct, frozen=True):
    """The agent sent a heartbeat in its session."""

    health: Health = Health.UNKNOWN
    message: str = ""


class StreamOpened(msgspec.Struct, frozen=True):
    """The agent subscribed."""


class StreamClosed(msgspec.Struct, frozen=True):
    """The agent's stream ended, for whatever reason."""


class Deregistered(msgspec.Struct, frozen=True):
    """The agent says that it leaves."""

    reason: str = ""


class DrainRequested(msgspec.Struct, frozen=True):
    """A user wants it to leave."""

    reason: str = ""


class RemovalRequested(msgspec.Struct, frozen=True):
    """A user wants it gone: it drains first, unless it is offline."""

    reason: str = ""


class DeploymentStarted(msgspec.Struct, frozen=True):
    """A deployment, or its rollback, reaches the instance."""

    deployment_id: str


class DeploymentEnded(msgspec.Struct, frozen=True):
    """A deployment is over for the instance, its rollback included."""

    deployment_id: str
    outcome: DeploymentOutcome


class TimePassed(msgspec.Struct, frozen=True):
    """Nothing happened, but it is later."""

    listening_since: datetime
    """When the hub started. It does not hold against an instance that it was silent before."""


Event: TypeAlias = (
    Registered
    | Heartbeat
    | StreamOpened
    | StreamClosed
    | Deregistered
    | DrainRequested
    | RemovalRequested
    | DeploymentStarted
    | DeploymentEnded
    | TimePassed
)

_WITHOUT_INSTANCE: Final = (Registered, TimePassed, StreamClosed, DeploymentEnded)
"""The events that are not refused where there is no instance, or no longer."""
_NOT_WHILE_DRAINING: Final = (Registered, DeploymentStarted)


class StateChanged(msgspec.Struct, frozen=True):
    """Tell users about a new state."""

    before: State
    after: State
    trigger: Trigger


class SendDrain(msgspec.Struct, frozen=True):
    """Tell the agent to drain, if it has a stream. Its heartbeats tell it, too."""

    timeout_seconds: int
    reason: str


class CloseStream(msgspec.Struct, frozen=True):
    """End the stream of an earlier session, or of a removed instance."""


class Refusal(StrEnum):
    """Why an event is refused. The instance is as before."""

    UNREGISTERED = "unregistered"
    DRAINING = "draining"
    REMOVED = "removed"
    BUSY = "busy"
    """Another deployment is in progress."""


class Refuse(msgspec.Struct, frozen=True):
    """Refuse the call, or the request, that the event is about."""

    refusal: Refusal


Command: TypeAlias = StateChanged | SendDrain | CloseStream | Refuse


def advance(
    instance: Instance, event: Event, now: datetime, timeouts: Timeouts
) -> tuple[Instance, tuple[Command, ...]]:
    """Return the instance after an event, and what to do. Doing that again is harmless."""
    refusal = _refusal(instance, event)
    if refusal is not None:
        return instance, (Refuse(refusal),)
    match event:
        case Registered():
            return _register(instance, now)
        case Heartbeat():
            return _hear(instance, event, now)
        case StreamOpened():
            return instance, _drain_notices(instance)
        case StreamClosed():
            return instance, ()
        case Deregistered():
            leaving = _with_drain(instance, DrainCause.DEREGISTERED, event.reason, now, timeouts)
            return _follow(leaving, [Trigger.DEREGISTERED], now)
        case DrainRequested() | RemovalRequested():
            return _drain(instance, event, now, timeouts)
        case DeploymentStarted():
            target = msgspec.structs.replace(instance, deployment_id=event.deployment_id)
            return _follow(target, [Trigger.DEPLOYMENT], now)
        case DeploymentEnded():
            return _end_deployment(instance, event, now)
        case TimePassed():
            return _pass_time(instance, event, now, timeouts)
        case _:
            assert_never(event)


def next_deadline(instance: Instance, listening_since: datetime, timeouts: Timeouts) -> datetime | None:
    """Return from when on the passing of time alone changes the state; None if it never does."""
    if instance.state in CONNECTED:
        return max(instance.last_seen, listening_since) + timeouts.offline_threshold
    if instance.state is State.OFFLINE:
        # After an absence of the hub itself, agents get time to come back.
        returned = listening_since + min(timeouts.remove_after, _RETURN)
        return max(instance.since + timeouts.remove_after, returned)
    if instance.state is State.DRAINING and instance.drain is not None:
        return instance.drain.deadline
    return None


def _refusal(instance: Instance, event: Event) -> Refusal | None:
    if instance.state is State.UNKNOWN and not isinstance(event, _WITHOUT_INSTANCE):
        return Refusal.UNREGISTERED
    if instance.state is State.REMOVED and not isinstance(event, _WITHOUT_INSTANCE):
        return Refusal.REMOVED
    if instance.state is State.DRAINING and isinstance(event, _NOT_WHILE_DRAINING):
        return Refusal.DRAINING
    if isinstance(event, DeploymentStarted) and instance.deployment_id not in (None, event.deployment_id):
        return Refusal.BUSY
    return None


def _register(instance: Instance, now: datetime) -> tuple[Instance, tuple[Command, ...]]:
    closing: tuple[Command, ...] = (CloseStream(),) if instance.session else ()
    if instance.state in (State.UNKNOWN, State.REMOVED):
        instance = Instance(incarnation=instance.incarnation + 1, registered=now)
    registered = msgspec.structs.replace(
        instance, session=instance.session + 1, last_seen=max(instance.last_seen, now)
    )
    online, changes = _follow(registered, [Trigger.REGISTERED, *_deployment(registered)], now)
    return online, closing + changes


def _hear(instance: Instance, heartbeat: Heartbeat, now: datetime) -> tuple[Instance, tuple[Command, ...]]:
    says_something = heartbeat.health is not Health.UNKNOWN
    heard = msgspec.structs.replace(
        instance,
        last_seen=max(instance.last_seen, now),
        message=heartbeat.message if says_something else instance.message,
    )
    triggers = [Trigger.HEARD]
    if heartbeat.health is Health.HEALTHY:
        triggers.append(Trigger.HEALTHY)
    triggers += _deployment(instance)
    if heartbeat.health in (Health.DEGRADED, Health.UNHEALTHY):
        triggers.append(Trigger.UNHEALTHY)
    return _follow(heard, triggers, now)


def _drain(
    instance: Instance, event: DrainRequested | RemovalRequested, now: datetime, timeouts: Timeouts
) -> tuple[Instance, tuple[Command, ...]]:
    triggers = [Trigger.DRAIN_REQUESTED]
    if isinstance(event, RemovalRequested) and instance.state is State.OFFLINE:
        triggers.append(Trigger.DRAINED)
    leaving = _with_drain(instance, DrainCause.REQUESTED, event.reason, now, timeouts)
    left, changes = _follow(leaving, triggers, now)
    return left, changes + _drain_notices(left)


def _end_deployment(
    instance: Instance, event: DeploymentEnded, now: datetime
) -> tuple[Instance, tuple[Command, ...]]:
    if instance.deployment_id != event.deployment_id:
        return instance, ()
    has_failed = event.outcome is DeploymentOutcome.ROLLBACK_FAILED
    released = msgspec.structs.replace(instance, deployment_id=None)
    return _follow(released, [Trigger.ROLLBACK_FAILED if has_failed else Trigger.DEPLOYMENT_ENDED], now)


def _pass_time(
    instance: Instance, event: TimePassed, now: datetime, timeouts: Timeouts
) -> tuple[Instance, tuple[Command, ...]]:
    deadline = next_deadline(instance, event.listening_since, timeouts)
    if deadline is None or now < deadline:
        return instance, ()
    if instance.state is State.DRAINING:
        return _follow(instance, [Trigger.DRAINED], now)
    if instance.state is State.OFFLINE:
        leaving = _with_drain(instance, DrainCause.OFFLINE, "", now, timeouts)
        return _follow(leaving, [Trigger.OFFLINE_TOO_LONG], now)
    return _follow(instance, [Trigger.SILENT], now)


def _deployment(instance: Instance) -> list[Trigger]:
    """A deployment that is in progress goes on as soon as the instance is online."""
    return [] if instance.deployment_id is None else [Trigger.DEPLOYMENT]


def _with_drain(instance: Instance, cause: DrainCause, reason: str, now: datetime, timeouts: Timeouts) -> Instance:
    """What began first stays: another request does not prolong it."""
    drain = instance.drain or Drain(cause, reason, now, now + timeouts.drain_timeout)
    return msgspec.structs.replace(instance, drain=drain)


def _drain_notices(instance: Instance) -> tuple[Command, ...]:
    drain = instance.drain
    if instance.state is not State.DRAINING or drain is None or drain.cause is not DrainCause.REQUESTED:
        return ()
    return (SendDrain(drain.timeout_seconds, drain.reason),)


def _follow(
    instance: Instance, triggers: Iterable[Trigger], now: datetime
) -> tuple[Instance, tuple[Command, ...]]:
    """Return the instance after these triggers, and what they changed."""
    commands: list[Command] = []
    for trigger in triggers:
        after = TRANSITIONS.get((instance.state, trigger))
        if after is None:
            continue
        commands.append(StateChanged(instance.state, after, trigger))
        instance = msgspec.structs.replace(instance, state=after, since=now)
    if commands and instance.state is State.REMOVED:
        instance = msgspec.structs.replace(instance, deployment_id=None)
        commands.append(CloseStream())
    return instance, tuple(commands)
