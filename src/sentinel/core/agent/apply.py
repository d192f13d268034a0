"""How one version is applied to the proxy, step by step.

    rendering → testing → writing → reloading → checking → ended
                             └─────────┴───────────┴→ restoring → reloading back → checking back → ended

`advance(apply, event, now)` returns the state after an event and what to do then: reports for the hub, and at most
one action, whose outcome is the next event. The state is saved before the action begins, so that an agent that is
killed goes on with `resume`. Each action can be repeated.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

import msgspec

from sentinel.core.agent.orders import Report, ReportState, Task
from sentinel.core.counted import counted

DEADLINE_PASSED: Final = "the deadline has passed"
NOT_RESTORED: Final = "; the configuration before is not restored: "
INTERRUPTED: Final = "the agent was interrupted twice while the proxy took over the version"


class Step(StrEnum):
    """The phase of an apply."""

    RENDERING = "rendering"
    """The content is verified, and secrets become files."""
    TESTING = "testing"
    """The proxy says whether it accepts the candidate, which is not the file that it reads."""
    WRITING = "writing"
    RELOADING = "reloading"
    CHECKING = "checking"
    RESTORING = "restoring"
    """The version before is written back."""
    RELOADING_BACK = "reloading_back"
    CHECKING_BACK = "checking_back"
    ENDED = "ended"


class Action(StrEnum):
    """What the shell has to do. It answers with `Rendered`, or `Done`, or `Failed`."""

    RENDER = "render"
    TEST = "test"
    WRITE = "write"
    """Keep a copy of the file and replace it."""
    RELOAD = "reload"
    RESTART = "restart"
    CHECK = "check"
    """Wait a moment, then check the health once."""
    RESTORE = "restore"
    """Replace the file by the copy, or remove it if there was none."""


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """The text for the proxy was rendered."""

    hash: str
    """The hash of the text that the proxy will read."""
    content_hash: str
    """The hash of the content as people wrote it."""
    secrets: dict[str, str] = {}
    """The files of its secrets, by their references."""
    previous: str
    """The hash of the current file; empty if there is no file."""
    is_running: bool = False
    """Whether this very text, with the same secrets, runs already."""
    needs_restart: bool = False
    can_restart: bool = False


class Done(msgspec.Struct, frozen=True):
    """The action was successful."""


class Failed(msgspec.Struct, frozen=True):
    """The action failed."""

    message: str
    details: str = ""
    """What the proxy said."""


Event: TypeAlias = Rendered | Done | Failed


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """A version that is being applied."""

    task: Task
    attempts: int
    """How many times the health has been checked."""
    step: Step = Step.RENDERING
    checked: int = 0
    """How many of these checks have failed."""
    candidate: str = ""
    """The hash of the text that the proxy will read."""
    content_hash: str = ""
    secrets: dict[str, str] = {}
    previous: str = ""
    """The hash of the previous file; empty if there was none."""
    is_running: bool = False
    """Whether the version runs already, so that only its health is checked."""
    needs_restart: bool = False
    can_restart: bool = False
    was_told: bool = False
    """Whether the proxy was told to read the candidate."""
    interruptions: int = 0
    failure: Failed | None = None
    """Why the version is not applied."""
    restore_failure: Failed | None = None
    """Why the proxy does not run what it ran before, either."""

    @property
    def is_successful(self) -> bool:
        """Whether the version runs."""
        return self.step is Step.ENDED and self.failure is None

    @property
    def has_written(self) -> bool:
        """Whether the file may differ from the previous one."""
        return self.step not in (Step.RENDERING, Step.TESTING) and not self.is_running

    @property
    def lacks_restart(self) -> bool:
        """Whether the proxy has to be restarted before all of the version is in force."""
        return self.needs_restart and not self.can_restart


Advanced: TypeAlias = tuple[Apply, tuple[Report, ...], Action | None]
"""The state, what the hub has to be told, and what to do next."""


def begin(task: Task, *, attempts: int) -> Advanced:
    """Begin to apply a version whose content has arrived."""
    apply = Apply(task=task, attempts=attempts)
    return apply, _tell(apply, ReportState.IN_PROGRESS), Action.RENDER


def advance(apply: Apply, event: Event, now: datetime) -> Advanced:
    """Return what follows from the outcome of the last action."""
    match apply.step:
        case Step.RENDERING:
            return _rendered(apply, event, now)
        case Step.TESTING:
            if isinstance(event, Failed):
                return _end(_failed(apply, event))
            if _is_late(apply, now):
                return _end(_failed(apply, Failed(DEADLINE_PASSED)))
            return _to(apply, Step.WRITING, Action.WRITE)
        case Step.WRITING:
            if isinstance(event, Failed):
                return _to(_failed(apply, event), Step.RESTORING, Action.RESTORE)
            told = msgspec.structs.replace(apply, was_told=True)
            return _to(told, Step.RELOADING, _reload(apply))
        case Step.RELOADING:
            if isinstance(event, Failed):
                return _to(_failed(apply, event), Step.RESTORING, Action.RESTORE)
            return _check(apply)
        case Step.CHECKING:
            return _checked(apply, event, now)
        case Step.RESTORING:
            if isinstance(event, Failed):
                return _end(_unrestored(apply, event))
            # No reload if the proxy was not told to read the new file, or if there was no file before.
            if not apply.was_told or not apply.previous:
                return _end(apply)
            return _to(apply, Step.RELOADING_BACK, _reload(apply))
        case Step.RELOADING_BACK:
            if isinstance(event, Failed):
                return _end(_unrestored(apply, event))
            return _to(msgspec.structs.replace(apply, checked=0), Step.CHECKING_BACK, Action.CHECK)
        case Step.CHECKING_BACK:
            if not isinstance(event, Failed):
                return _end(apply)
            again = msgspec.structs.replace(apply, checked=apply.checked + 1)
            if again.checked < again.attempts:
                return _to(again, Step.CHECKING_BACK, Action.CHECK)
            return _end(_unrestored(again, _unhealthy(again, event)))
        case Step.ENDED:
            return apply, (), None
        case _:
            assert_never(apply.step)


def resume(apply: Apply, file_hash: str) -> Advanced | None:
    """Go on after the agent was killed. `file_hash` is that of the file as it is, empty if there is none.

    None: nothing was written, so it has to begin again, with the content.
    """
    if apply.step in (Step.RESTORING, Step.RELOADING_BACK, Step.CHECKING_BACK):
        return _to(apply, Step.RESTORING, Action.RESTORE)
    if apply.step is Step.ENDED:
        return apply, (), None
    if not apply.has_written or file_hash != apply.candidate:
        return None
    interrupted = msgspec.structs.replace(apply, interruptions=apply.interruptions + 1, checked=0, was_told=True)
    if interrupted.interruptions > 1:
        # The version itself may be what kills the agent each time.
        return _to(_failed(interrupted, Failed(INTERRUPTED)), Step.RESTORING, Action.RESTORE)
    # The proxy may not have been told yet. Telling it twice does no harm.
    return _to(interrupted, Step.RELOADING, _reload(interrupted))


def _rendered(apply: Apply, event: Event, now: datetime) -> Advanced:
    if isinstance(event, Failed):
        return _end(_failed(apply, event))
    if _is_late(apply, now):
        return _end(_failed(apply, Failed(DEADLINE_PASSED)))
    if not isinstance(event, Rendered):
        raise TypeError(f"expected Rendered or Failed, got {event}")
    rendered = msgspec.structs.replace(
        apply,
        candidate=event.hash,
        content_hash=event.content_hash,
        secrets=event.secrets,
        previous=event.previous,
        is_running=event.is_running,
        needs_restart=event.needs_restart,
        can_restart=event.can_restart,
    )
    return _check(rendered) if event.is_running else _to(rendered, Step.TESTING, Action.TEST)


def _checked(apply: Apply, event: Event, now: datetime) -> Advanced:
    if not isinstance(event, Failed):
        return _end(apply)
    again = msgspec.structs.replace(apply, checked=apply.checked + 1)
    is_late = _is_late(apply, now)
    if again.checked < again.attempts and not is_late:
        return _to(again, Step.CHECKING, Action.CHECK)
    unhealthy = _unhealthy(again, event)
    if again.checked < again.attempts:
        unhealthy = Failed(f"{DEADLINE_PASSED}; {unhealthy.message}", unhealthy.details)
    failed = _failed(again, unhealthy)
    return _end(failed) if apply.is_running else _to(failed, Step.RESTORING, Action.RESTORE)


def _check(apply: Apply) -> Advanced:
    checking = msgspec.structs.replace(apply, step=Step.CHECKING)
    return checking, _tell(apply, ReportState.VALIDATING), Action.CHECK


def _unhealthy(apply: Apply, event: Failed) -> Failed:
    attempts = counted(apply.checked, "attempt")
    return Failed(f"health check failed after {attempts}", event.details or event.message)


def _reload(apply: Apply) -> Action:
    return Action.RESTART if apply.needs_restart and apply.can_restart else Action.RELOAD


def _failed(apply: Apply, failure: Failed) -> Apply:
    return msgspec.structs.replace(apply, failure=failure)


def _unrestored(apply: Apply, failure: Failed) -> Apply:
    return msgspec.structs.replace(apply, restore_failure=failure)


def _is_late(apply: Apply, now: datetime) -> bool:
    order = apply.task.order
    return order is not None and order.deadline is not None and now >= order.deadline


def _to(apply: Apply, step: Step, action: Action) -> Advanced:
    return msgspec.structs.replace(apply, step=step), (), action


def _end(apply: Apply) -> Advanced:
    ended = msgspec.structs.replace(apply, step=Step.ENDED)
    if apply.failure is not None:
        failure = explain(ended)
        return ended, _tell(ended, ReportState.FAILED, failure.message, failure.details), None
    is_rollback = apply.task.order is not None and apply.task.order.is_rollback
    state = ReportState.ROLLED_BACK if is_rollback else ReportState.COMPLETED
    return ended, _tell(ended, state, "restart required" if apply.lacks_restart else ""), None


def explain(apply: Apply) -> Failed:
    """Say why it failed, in the same words to everybody."""
    failure, unrestored = apply.failure or Failed(""), apply.restore_failure
    if unrestored is None:
        return failure
    message = f"{failure.message}{NOT_RESTORED}{unrestored.message}"
    return Failed(message, "\n".join(filter(None, (failure.details, unrestored.details))))


def _tell(apply: Apply, state: ReportState, message: str = "", details: str = "") -> tuple[Report, ...]:
    order = apply.task.order
    if order is None:
        return ()
    return (Report(order=order.key, state=state, message=message, details=details),)
