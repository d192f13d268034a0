"""The changes of state, compared with a table of their own and, for long histories, with a model."""

from __future__ import annotations

from datetime import datetime, timedelta

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sentinel.core.hub.instance import (
    CloseStream,
    Command,
    DeploymentEnded,
    DeploymentOutcome,
    DeploymentStarted,
    Deregistered,
    DrainRequested,
    Event,
    Health,
    Heartbeat,
    Instance,
    Refuse,
    Registered,
    RemovalRequested,
    StateChanged,
    StreamClosed,
    StreamOpened,
    Timeouts,
    TimePassed,
    advance,
    next_deadline,
)
from sentinel.core.hub.states import CONNECTED, TRANSITIONS, State
from tests.core.hub.instances import START
from tests.support.examples import examples

SECOND = timedelta(seconds=1)
TIMEOUTS = Timeouts()

ALLOWED = {
    "unknown": {"online"},
    "online": {"deploying", "degraded", "offline", "draining"},
    "deploying": {"online", "degraded", "offline", "draining"},
    "degraded": {"online", "offline", "draining"},
    "offline": {"online", "draining"},
    "draining": {"removed"},
    "removed": set(),
}

EVENTS: dict[str, Event] = {
    "register": Registered(),
    "heartbeat": Heartbeat(),
    "healthy": Heartbeat(Health.HEALTHY, "fine"),
    "degraded": Heartbeat(Health.DEGRADED, "slow"),
    "unhealthy": Heartbeat(Health.UNHEALTHY, "down"),
    "stream": StreamOpened(),
    "no stream": StreamClosed(),
    "deregister": Deregistered("bye"),
    "drain": DrainRequested("old"),
    "remove": RemovalRequested("old"),
    "deploy d": DeploymentStarted("d"),
    "deploy e": DeploymentStarted("e"),
    "completed d": DeploymentEnded("d", DeploymentOutcome.COMPLETED),
    "failed d": DeploymentEnded("d", DeploymentOutcome.FAILED),
    "rolled back d": DeploymentEnded("d", DeploymentOutcome.ROLLED_BACK),
    "broken d": DeploymentEnded("d", DeploymentOutcome.ROLLBACK_FAILED),
    "completed e": DeploymentEnded("e", DeploymentOutcome.COMPLETED),
}

STATES = ("unknown", "online", "deploying", "degraded", "offline", "draining", "removed")

# What an event does in each state: the states that follow, `-` for none, `!` for a refusal. The instance is the
# target of deployment d while it is deploying, of none otherwise.
TABLE = """
register       online  -         -         -         online            !        online
heartbeat      !       -         -         -         online            -        !
healthy        !       -         -         online    online            -        !
degraded       !       degraded  -         -         online,degraded   -        !
unhealthy      !       degraded  -         -         online,degraded   -        !
stream         !       -         -         -         -                 -        !
no stream      -       -         -         -         -                 -        -
deregister     !       draining  draining  draining  draining          removed  !
drain          !       draining  draining  draining  draining          -        !
remove         !       draining  draining  draining  draining,removed  -        !
deploy d       !       deploying -         -         -                 !        !
deploy e       !       deploying !         -         -                 !        !
completed d    -       -         online    -         -                 -        -
failed d       -       -         online    -         -                 -        -
rolled back d  -       -         online    -         -                 -        -
broken d       -       -         degraded  -         -                 -        -
completed e    -       -         -         -         -                 -        -
"""
EXPECTED = {
    (name, state): cell
    for name, line in ((line[:15].strip(), line[15:]) for line in TABLE.strip().splitlines())
    for state, cell in zip(STATES, line.split(), strict=True)
}

HISTORIES = {
    "unknown": [],
    "online": ["register"],
    "deploying": ["register", "deploy d"],
    "degraded": ["register", "degraded"],
    "offline": ["register", "silence"],
    "draining": ["register", "drain"],
    "removed": ["register", "drain", "deregister"],
}


def instance_in(state: str) -> Instance:
    instance = Instance()
    for name in HISTORIES[state]:
        if name == "silence":
            later = START + TIMEOUTS.offline_threshold
            instance, _ = advance(instance, TimePassed(START), later, TIMEOUTS)
        else:
            instance, _ = advance(instance, EVENTS[name], START, TIMEOUTS)
    assert instance.state == state
    return instance


def path_of(commands: tuple[Command, ...]) -> str:
    """Return the states that were entered, in the notation of the table."""
    if any(isinstance(command, Refuse) for command in commands):
        return "!"
    return ",".join(command.after for command in commands if isinstance(command, StateChanged)) or "-"


def test_every_event_has_a_row_for_every_state() -> None:
    assert set(EXPECTED) == {(name, state) for name in EVENTS for state in STATES}
    assert set(STATES) == set(State)


def test_the_transitions_are_these_and_no_others() -> None:
    changes: dict[str, set[str]] = {state: set() for state in STATES}
    for (before, _), after in TRANSITIONS.items():
        changes[before].add(after)

    assert changes == ALLOWED


@pytest.mark.parametrize(("name", "state"), list(EXPECTED))
def test_an_event_has_its_effect_in_every_state(name: str, state: str) -> None:
    before = instance_in(state)

    after, commands = advance(before, EVENTS[name], START + SECOND, TIMEOUTS)

    path = EXPECTED[name, state]
    assert path_of(commands) == path
    assert after.state == (state if path in "-!" else path.split(",")[-1])
    if path == "!":
        assert after == before
    if path not in "-!":
        assert after.since == START + SECOND


class Model:
    """What is expected, in seconds and words."""

    def __init__(self) -> None:
        self.now = self.listening = 0
        self.state = "unknown"
        self.entered = self.heard = self.drain_began = 0
        self.deployment: str | None = None
        self.incarnation = self.session = 0

    def apply(self, name: str) -> str:
        """Return the path of an event."""
        is_about_deployment = name[-2:] in (" d", " e")
        # The table has d as the deployment in progress; here it may be e.
        path = EXPECTED[f"{name[:-1]}d" if is_about_deployment else name, self.state]
        if path == "!":
            return path
        if name.startswith("deploy "):
            if self.deployment not in (None, name[-1]):
                return "!"
            self.deployment = name[-1]
        elif is_about_deployment:
            if self.deployment != name[-1]:
                return "-"
            self.deployment = None
        if "online" in path and self.deployment is not None:
            path = "online,deploying"
        if name == "register":
            self._register()
        if name in ("register", "heartbeat", "healthy", "degraded", "unhealthy"):
            self.heard = self.now
        return self._enter(path)

    def sweep(self) -> str:
        silent = self.now - max(self.heard, self.listening)
        if self.state in ("online", "deploying", "degraded") and silent >= 90:
            return self._enter("offline")
        is_late = self.now - self.entered >= 24 * 3600 and self.now - self.listening >= 600
        if self.state == "offline" and is_late:
            return self._enter("draining")
        if self.state == "draining" and self.now - self.drain_began >= 30:
            return self._enter("removed")
        return "-"

    def _register(self) -> None:
        if self.state in ("unknown", "removed"):
            self.incarnation += 1
            self.session = 0
            self.deployment = None
        self.session += 1

    def _enter(self, path: str) -> str:
        if path == "-":
            return path
        for state in path.split(","):
            if state == "draining":
                self.drain_began = self.now
            if state == "removed":
                self.deployment = None
            self.state, self.entered = state, self.now
        return path


class Histories(RuleBasedStateMachine):
    """Applies each event to an instance and the model, and compares them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.instance = Instance()

    @property
    def now(self) -> datetime:
        return START + self.model.now * SECOND

    @property
    def listening_since(self) -> datetime:
        return START + self.model.listening * SECOND

    @rule(name=st.sampled_from(list(EVENTS)))
    def event(self, name: str) -> None:
        expected = self.model.apply(name)

        self._apply(EVENTS[name], expected)

    @rule(seconds=st.sampled_from([1, 29, 30, 31, 89, 90, 91, 599, 600, 3600, 24 * 3600 - 1, 24 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self.model.now += seconds

    @rule()
    def the_hub_restarts(self) -> None:
        self.model.listening = self.model.now

    @rule()
    def sweep(self) -> None:
        expected = self.model.sweep()

        self._apply(TimePassed(self.listening_since), expected)

    def _apply(self, event: Event, expected: str) -> None:
        before = self.instance

        self.instance, commands = advance(before, event, self.now, TIMEOUTS)

        assert path_of(commands) == expected
        changes = [command for command in commands if isinstance(command, StateChanged)]
        assert all(change.after in ALLOWED[change.before] for change in changes)
        assert CloseStream() in commands or State.REMOVED not in {change.after for change in changes}
        is_new = self.instance.incarnation != before.incarnation
        states = [State.UNKNOWN if is_new else before.state, *(change.after for change in changes)]
        assert [change.before for change in changes] == states[:-1]

    @invariant()
    def is_as_the_model_expects(self) -> None:
        instance, model = self.instance, self.model
        assert instance.state == model.state
        assert (instance.incarnation, instance.session) == (model.incarnation, model.session)
        assert instance.deployment_id == model.deployment
        if model.state != "unknown":
            assert instance.last_seen == START + model.heard * SECOND
            assert instance.since == START + model.entered * SECOND

    @invariant()
    def is_consistent(self) -> None:
        instance = self.instance
        assert (instance.drain is not None) == (instance.state in (State.DRAINING, State.REMOVED))
        if instance.state is State.DEPLOYING:
            assert instance.deployment_id is not None
        if instance.state in (State.ONLINE, State.REMOVED, State.UNKNOWN):
            assert instance.deployment_id is None

    @invariant()
    def changes_at_its_deadline_and_not_before(self) -> None:
        sweep = TimePassed(self.listening_since)
        deadline = next_deadline(self.instance, self.listening_since, TIMEOUTS)

        if deadline is None:
            assert self.instance.state not in {*CONNECTED, State.OFFLINE, State.DRAINING}
            assert advance(self.instance, sweep, self.now + timedelta(days=99), TIMEOUTS) == (self.instance, ())
            return
        just_before, at_deadline = deadline - timedelta(microseconds=1), deadline
        assert advance(self.instance, sweep, just_before, TIMEOUTS) == (self.instance, ())
        assert advance(self.instance, sweep, at_deadline, TIMEOUTS)[1] != ()


def test_any_history_goes_as_the_table_says() -> None:
    run_state_machine_as_test(
        Histories, settings=hypothesis.settings(max_examples=examples(300), stateful_step_count=50)
    )
