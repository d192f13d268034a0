"""A rollout under test: gives it events, keeps what it commands, and reads like a story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from sentinel.core.hub import deployment_plan, rollout, rollout_queries, rollout_state
from sentinel.core.hub.analysis import Outcome, Verdict
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    InstanceFacts,
    OfflinePolicy,
    Request,
    Rolling,
    Strategy,
    Targets,
    TargetVersion,
)
from sentinel.core.hub.rollout_row import Row
from sentinel.core.hub.rollout_state import (
    Acknowledged,
    Analyse,
    Analysed,
    Command,
    Event,
    Observed,
    Reported,
    ReportedState,
    RollbackState,
    RolloutState,
    SendDeployment,
    Started,
    TimePassed,
)
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RUNNING = (RolloutState.RUNNING, RollbackState.NONE)
COMPLETED = (RolloutState.COMPLETED, RollbackState.NONE)
ALL_AT_ONCE = Strategy.ALL_AT_ONCE
TIMEOUT = 5 * MINUTE
NO_DELAY = timedelta(0)
C = TypeVar("C", bound=Command)


def version(number: int, config_id: str = "api") -> TargetVersion:
    return TargetVersion(VersionName(config_id, number), f"hash-{config_id}-{number}")


OLD, NEW = version(1), version(2)


def facts(
    name: str,
    state: State = State.ONLINE,
    *,
    assigned: TargetVersion | None = OLD,
    labels: Mapping[str, str] | None = None,
    incarnation: int = 1,
) -> InstanceFacts:
    return InstanceFacts(
        instance_id=name, state=state, assigned=assigned, labels=labels or {}, incarnation=incarnation
    )


def request(
    *ids: str,
    strategy: Strategy = Strategy.ROLLING,
    rolling: Rolling | None = None,
    canary: Canary | None = None,
    offline: OfflinePolicy = OfflinePolicy.LATER,
    progress_deadline: timedelta | None = None,
) -> Request:
    return Request(
        config_id="api",
        version=2,
        targets=Targets(ids=ids),
        strategy=strategy,
        offline=offline,
        rolling=rolling or Rolling(),
        canary=canary or Canary(),
        progress_deadline=progress_deadline,
    )


def batches_of(size: int, *, threshold: int = 1, delay: timedelta = NO_DELAY) -> Rolling:
    return Rolling(batch_size=Count(size), batch_delay=delay, failure_threshold=Count(threshold))


class Driver:
    """A rollout, the time, and every command so far."""

    def __init__(self, asked: Request, instances: Sequence[InstanceFacts] | None = None) -> None:
        known = [facts(name) for name in asked.targets.ids] if instances is None else instances
        plan = deployment_plan.plan(asked, known)
        assert plan.problems == ()
        self.now = START
        self.rollout = rollout_state.create("d", asked, plan, to=NEW, deployment_timeout=TIMEOUT, now=START)
        self.created = self.rollout
        self.commands: list[Command] = []
        self.facts = {each.instance_id: each for each in known}

    def do(self, *events: Event) -> Sequence[Command]:
        """Apply events and return what they cause."""
        caused: list[Command] = []
        for event in events:
            self.rollout, commands = rollout.advance(self.rollout, event, self.now)
            caused += commands
        self.commands += caused
        return caused

    def start(self) -> Sequence[Command]:
        return self.do(Started())

    def accept(self, *names: str, is_rollback: bool = False) -> Sequence[Command]:
        return self.do(*(Acknowledged(name, is_accepted=True, is_rollback=is_rollback) for name in names))

    def reject(self, name: str, reason: str = "", *, is_rollback: bool = False) -> Sequence[Command]:
        return self.do(Acknowledged(name, is_accepted=False, reason=reason, is_rollback=is_rollback))

    def report(
        self, name: str, state: ReportedState, message: str = "", *, is_rollback: bool = False
    ) -> Sequence[Command]:
        return self.do(Reported(name, state, is_rollback=is_rollback, message=message))

    def complete(self, *names: str) -> Sequence[Command]:
        return self.do(*(Reported(name, ReportedState.COMPLETED) for name in names))

    def fail(self, name: str, message: str = "") -> Sequence[Command]:
        return self.report(name, ReportedState.FAILED, message)

    def go_back(self, *names: str) -> Sequence[Command]:
        return self.do(*(Reported(name, ReportedState.ROLLED_BACK, is_rollback=True) for name in names))

    def observe(
        self, name: str, state: State, *, assigned: TargetVersion | None = OLD, incarnation: int = 1
    ) -> Sequence[Command]:
        return self.do(Observed((facts(name, state, assigned=assigned, incarnation=incarnation),)))

    def wait(self, duration: timedelta, listening_since: datetime | None = None) -> Sequence[Command]:
        self.now += duration
        return self.do(TimePassed() if listening_since is None else TimePassed(listening_since))

    def answer(self, outcome: Outcome, reason: str = "") -> Sequence[Command]:
        """Answer the last analysis that was asked for."""
        asked = of_type(self.commands, Analyse)[-1]
        return self.do(Analysed(asked.until, Verdict(outcome=outcome, reason=reason)))

    def row(self, name: str) -> Row:
        return self.rollout.rows[name]

    @property
    def states(self) -> Mapping[str, str]:
        return {name: str(row.state) for name, row in self.rollout.rows.items()}

    @property
    def status(self) -> tuple[RolloutState, RollbackState]:
        return self.rollout.state, self.rollout.rollback

    @property
    def deadline(self) -> datetime | None:
        return rollout_queries.next_deadline(self.rollout)


def rolling(*names: str, size: int = 1, threshold: int = 1, delay: timedelta = NO_DELAY) -> Driver:
    """Return a rolling deployment that has started."""
    driver = Driver(request(*names, rolling=batches_of(size, threshold=threshold, delay=delay)))
    driver.start()
    return driver


def of_type(commands: Sequence[Command], kind: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


def sent(commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Return who was told to apply what."""
    return [(each.instance_id, str(each.version.name)) for each in of_type(commands, SendDeployment)]
