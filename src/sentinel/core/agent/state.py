"""All that an agent remembers: what runs, what it has to run, how that went, and what the hub does not know yet.

It is saved as a whole, so that a report and the change that it is about are never apart. Each function returns the
state after something happened. The same state means that nothing changes, as for a task that is known already.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from sentinel.core.agent import apply as applying
from sentinel.core.agent.apply import Apply
from sentinel.core.agent.orders import OrderKey, Report, ReportState, Source, Task

MAX_REPORTS: Final = 200
"""How many reports wait for the hub. Those about the oldest orders are dropped first."""
MAX_ORDERS: Final = 20
"""How many orders are remembered, to answer again if the hub asks again."""
_MAX_MARKERS: Final = 20
MAX_INTERRUPTIONS: Final = 3
"""How often an order is begun again before the agent gives up on it."""

DRAINING: Final = "the instance is draining"
NO_VERSION: Final = "the deployment names no version"
UNKNOWN_ORDER: Final = "the agent does not know this deployment; its state was lost"

_NUMBERED = re.compile(r"[a-z]+/(.+@[0-9]+/[0-9]+)")
"""The hub's own ids of assignments, `config/api@3/1700…` and `fetch/api@3/1700…`: what follows is the same."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The version that runs."""

    version: str
    hash: str
    """The hash of its content, as people wrote it."""
    file_hash: str
    """The hash of the file that the proxy reads. It differs from `hash` if the content names secrets."""
    secrets: dict[str, str] = {}
    """The files of its secrets, by their references."""
    applied: datetime
    lacks_restart: int | None = None
    """The id of the process that has to be restarted, 0 if unknown; None if no restart is needed."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The version that was tried last. It is tried again only if it is assigned once more."""

    version: str
    markers: tuple[str, ...] = ()
    """Ids of the assignments that asked for it."""
    adopts_markers: bool = True
    """Whether the first id of each kind belongs to the assignment that was tried. Not after a failed order: when
    its version is assigned by hand, it is tried again."""
    failure: str = ""
    """Why it does not run."""


class Unloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The file is what it was before a version that failed, but the proxy may not run it."""

    file_hash: str
    process_id: int | None
    """The process that could not be told to read it, 0 if unknown; None if it was told, but was not healthy."""


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """The whole memory of an agent."""

    applied: Applied | None = None
    waiting: Task | None = None
    """What has to be applied next and has not begun."""
    interruptions: int = 0
    """How often the waiting task had begun when the agent was killed."""
    apply: Apply | None = None
    attempt: Attempt | None = None
    restore_failure: str = ""
    """Why the proxy does not run the applied version; empty if it does."""
    unloaded: Unloaded | None = None
    """What has to be seen before the proxy counts as restored; None if its file could not be restored, either."""
    orders: tuple[Report, ...] = ()
    """The newest report about each of the last orders."""
    reports: tuple[Report, ...] = ()
    """What the hub has not been told yet."""


def receive(state: AgentState, task: Task, now: datetime, *, is_draining: bool = False) -> AgentState:
    """Take note of what the hub wants."""
    if task.order is not None:
        return _receive_order(state, task, task.order.key, now, is_draining=is_draining)
    if is_draining or not task.version:
        return state
    return _receive_assignment(state, task)


def begin(state: AgentState, *, attempts: int) -> tuple[AgentState, applying.Action | None]:
    """Begin to apply what is waiting. Its content has arrived."""
    if state.waiting is None or state.apply is not None:
        return state, None
    return _advanced(
        msgspec.structs.replace(state, waiting=None), applying.begin(state.waiting, attempts=attempts)
    )


def advance(
    state: AgentState,
    event: applying.Event,
    now: datetime,
    *,
    applied: Applied | None = None,
    unloaded: Unloaded | None = None,
) -> tuple[AgentState, applying.Action | None]:
    """Go on with the apply after an action.

    If that was the last one, `applied` is what runs, and `unloaded` what may not run after a way back that failed.
    """
    if state.apply is None:
        return state, None
    next_state, action = _advanced(state, applying.advance(state.apply, event, now))
    if next_state.apply is None or next_state.apply.step is not applying.Step.ENDED:
        return next_state, action
    return _ended(next_state, next_state.apply, applied, unloaded), None


def healthy(state: AgentState, file_hash: str, process_id: int | None) -> AgentState:
    """The proxy is healthy. If it has read the file that was restored, it runs what it ran before.

    It has if it was told to, or if it is another process by now, which began after the file was restored.
    """
    unloaded = state.unloaded
    if unloaded is None or state.apply is not None or file_hash != unloaded.file_hash:
        return state
    if unloaded.process_id is not None and process_id in (None, unloaded.process_id):
        return state
    attempt, outdated = state.attempt, f"{applying.NOT_RESTORED}{state.restore_failure}"
    if attempt is not None:
        attempt = msgspec.structs.replace(attempt, failure=attempt.failure.removesuffix(outdated))
    return msgspec.structs.replace(state, attempt=attempt, restore_failure="", unloaded=None)


def restarted(state: AgentState, file_hash: str) -> tuple[AgentState, applying.Action | None]:
    """The agent starts, maybe after it was killed. `file_hash` is that of the proxy's file as it is.

    A version that failed may be tried again. An apply goes on where it was, or begins again.
    """
    attempt = state.attempt
    if attempt is not None and attempt.failure:
        state = msgspec.structs.replace(state, attempt=None)
    if state.apply is None:
        return state, None
    resumed = applying.resume(state.apply, file_hash)
    if resumed is not None:
        return _advanced(state, resumed)
    task, interruptions = state.apply.task, state.interruptions + 1
    state = msgspec.structs.replace(state, apply=None, interruptions=interruptions)
    if state.waiting is not None:
        return _fail(state, task, f"superseded by {state.waiting.version}"), None
    if interruptions >= MAX_INTERRUPTIONS:
        return _fail(state, task, f"the agent was interrupted {interruptions} times before it was applied"), None
    return msgspec.structs.replace(state, waiting=task), None


def refuse(state: AgentState, task: Task, reason: str) -> AgentState:
    """What is waiting can never be applied."""
    if state.waiting != task:
        return state
    return _fail(msgspec.structs.replace(state, waiting=None), task, reason)


def expire(state: AgentState, now: datetime) -> AgentState:
    """An order that waits for its content longer than the hub waits for a report has failed."""
    order = None if state.waiting is None else state.waiting.order
    if state.waiting is None or order is None or order.deadline is None or now < order.deadline:
        return state
    return refuse(state, state.waiting, applying.DEADLINE_PASSED)


def stop(state: AgentState, key: OrderKey) -> AgentState:
    """The hub says that a deployment is over. What has begun is finished."""
    if state.waiting is None or state.waiting.order is None or state.waiting.order.key != key:
        return state
    return refuse(state, state.waiting, "the deployment is over")


def drain(state: AgentState) -> AgentState:
    """Nothing new is applied any more."""
    return state if state.waiting is None else refuse(state, state.waiting, DRAINING)


def delivered(state: AgentState, report: Report) -> AgentState:
    """The hub has a report."""
    remaining = tuple(each for each in state.reports if each != report)
    return state if len(remaining) == len(state.reports) else msgspec.structs.replace(state, reports=remaining)


def report_again(state: AgentState, key: OrderKey) -> AgentState:
    """The hub asks how far an order is."""
    known = _newest_report(state, key)
    if known is None:
        return tell(state, Report(order=key, state=ReportState.FAILED, message=UNKNOWN_ORDER))
    if known.state is ReportState.ACCEPTED:  # which says nothing about how far it is
        return tell(state, Report(order=key, state=ReportState.IN_PROGRESS, message="waiting for the content"))
    return _repeat(state, known)


def tell(state: AgentState, *reports: Report) -> AgentState:
    """Add reports for the hub, and remember the newest about each order."""
    for report in reports:
        others = tuple(each for each in state.orders if each.order != report.order)
        state = msgspec.structs.replace(
            state,
            orders=(*others, report)[-MAX_ORDERS:],
            reports=(*state.reports, report)[-MAX_REPORTS:],
        )
    return state


def failure_of(state: AgentState, task: Task) -> str:
    """Return why a task has failed, as the hub and the log get it."""
    known = None if task.order is None else _newest_report(state, task.order.key)
    if known is not None:
        return known.message
    return "" if state.attempt is None else state.attempt.failure


def _receive_order(
    state: AgentState, task: Task, key: OrderKey, now: datetime, *, is_draining: bool
) -> AgentState:
    known = _newest_report(state, key)
    if known is not None:
        return _repeat(state, known)
    deadline = None if task.order is None else task.order.deadline
    reason = ""
    if is_draining:
        reason = DRAINING
    elif not task.version:
        reason = NO_VERSION
    elif deadline is not None and now >= deadline:
        reason = applying.DEADLINE_PASSED
    if reason:
        return tell(state, Report(order=key, state=ReportState.REJECTED, message=reason))
    accepted = tell(_superseded(state, task), Report(order=key, state=ReportState.ACCEPTED))
    attempt = Attempt(version=task.version)
    return msgspec.structs.replace(accepted, waiting=task, attempt=attempt, interruptions=0)


def _receive_assignment(state: AgentState, task: Task) -> AgentState:
    attempt = state.attempt
    if attempt is None or attempt.version != task.version:
        new = _with_marker(Attempt(version=task.version), task)
        if task.source is Source.REGISTRATION and _runs(state, task):
            return _rename(msgspec.structs.replace(_superseded(state, task), waiting=None, attempt=new), task)
        return msgspec.structs.replace(_superseded(state, task), waiting=task, attempt=new, interruptions=0)
    marked = _with_marker(attempt, task)
    if marked == attempt:
        return state
    state = msgspec.structs.replace(state, attempt=marked)
    if _is_current(state, task):  # it was assigned once more while it is on its way
        return state
    again = msgspec.structs.replace(marked, failure="")
    if _is_same_assignment(attempt, task):
        if attempt.failure or state.applied is None or state.applied.version != task.version:
            return state
        task = msgspec.structs.replace(task, may_be_applied=True)
    return msgspec.structs.replace(_superseded(state, task), waiting=task, attempt=again, interruptions=0)


def _is_current(state: AgentState, task: Task) -> bool:
    current = state.waiting or (None if state.apply is None else state.apply.task)
    return current is not None and current.version == task.version


def _runs(state: AgentState, task: Task) -> bool:
    """Whether the content of a version runs, whatever it was called."""
    is_idle = state.apply is None and not state.restore_failure
    return is_idle and state.applied is not None and state.applied.hash == task.hash


def _rename(state: AgentState, task: Task) -> AgentState:
    applied = None if state.applied is None else msgspec.structs.replace(state.applied, version=task.version)
    return msgspec.structs.replace(state, applied=applied)


def _is_same_assignment(attempt: Attempt, task: Task) -> bool:
    """Whether an id that is new belongs to the assignment that was tried: an event and an action have two."""
    kind = _marker(task).partition(" ")[0]
    return attempt.adopts_markers and not any(each.startswith(f"{kind} ") for each in attempt.markers)


def _with_marker(attempt: Attempt, task: Task) -> Attempt:
    """Return the attempt with the id of the task; the same if it has it, or the task has none."""
    marker = _marker(task)
    if not marker or marker in attempt.markers:
        return attempt
    return msgspec.structs.replace(attempt, markers=(*attempt.markers, marker)[-_MAX_MARKERS:])


def _marker(task: Task) -> str:
    """Return the id of an assignment with its kind; ids of different kinds cannot be compared."""
    if not task.marker or task.source is Source.REGISTRATION:
        return ""
    numbered = _NUMBERED.fullmatch(task.marker)
    return f"{task.source} {task.marker}" if numbered is None else f"hub {numbered[1]}"


def _superseded(state: AgentState, by: Task) -> AgentState:
    """Return the state without the waiting task, and with a report that it was superseded."""
    waiting = state.waiting
    if waiting is None:
        return state
    state = msgspec.structs.replace(state, waiting=None)
    return _report_failure(state, waiting, f"superseded by {by.version} before it began")


def _advanced(state: AgentState, advanced: applying.Advanced) -> tuple[AgentState, applying.Action | None]:
    apply, reports, action = advanced
    return tell(msgspec.structs.replace(state, apply=apply), *reports), action


def _ended(state: AgentState, apply: Apply, applied: Applied | None, unloaded: Unloaded | None) -> AgentState:
    ended = msgspec.structs.replace(state, apply=None, interruptions=0)
    if apply.is_successful:
        attempt = state.attempt
        if attempt is not None and attempt.version == apply.task.version:
            attempt = msgspec.structs.replace(attempt, failure="")
        return msgspec.structs.replace(
            ended, applied=applied or state.applied, attempt=attempt, restore_failure="", unloaded=None
        )
    failed = _remember_failure(ended, apply.task, applying.explain(apply).message)
    if apply.restore_failure is None:
        return failed
    return msgspec.structs.replace(failed, restore_failure=apply.restore_failure.message, unloaded=unloaded)


def _fail(state: AgentState, task: Task, reason: str) -> AgentState:
    """A task has failed before anything was done for it."""
    return _remember_failure(_report_failure(state, task, reason), task, reason)


def _report_failure(state: AgentState, task: Task, reason: str) -> AgentState:
    if task.order is None:
        return state
    return tell(state, Report(order=task.order.key, state=ReportState.FAILED, message=reason))


def _remember_failure(state: AgentState, task: Task, reason: str) -> AgentState:
    attempt = state.attempt
    if attempt is None or attempt.version != task.version:
        return state  # something else is wanted by now
    adopts = attempt.adopts_markers and task.order is None
    failed = msgspec.structs.replace(attempt, failure=reason, adopts_markers=adopts)
    return msgspec.structs.replace(state, attempt=failed)


def _newest_report(state: AgentState, key: OrderKey) -> Report | None:
    return next((each for each in state.orders if each.order == key), None)


def _repeat(state: AgentState, known: Report) -> AgentState:
    """Tell the hub again what it asks for, unless that is on its way."""
    if any(each.order == known.order for each in state.reports):
        return state
    if known.state.is_acknowledgement:
        return tell(state, known)
    # It asks whether the order was accepted, or how far it is. Both are told; a repeated one changes nothing.
    return tell(state, Report(order=known.order, state=ReportState.ACCEPTED), known)
