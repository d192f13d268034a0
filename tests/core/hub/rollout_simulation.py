"""A hub and its agents in one process, with messages that are lost, repeated, delayed and reordered.

The hub is the smallest shell that `core.hub` needs: it stores the rollout as JSON, performs commands after that,
and answers heartbeats. It can be killed before and after it stores, and its clock can be set. Agents keep on disk
what a real one keeps. Users interfere. All randomness comes from one seed, and time is simulated.

`make sim SEEDS=1000:5000` simulates more seeds.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Final, TypeAlias

import msgspec

from sentinel.core.hub import deployment_plan, instance, rollout, rollout_queries, rollout_state, sync
from sentinel.core.hub.analysis import Outcome, Verdict
from sentinel.core.hub.deployment import (
    Canary,
    Count,
    InstanceFacts,
    Request,
    Rolling,
    Strategy,
    Targets,
    TargetVersion,
)
from sentinel.core.hub.instance import DeploymentEnded, DeploymentStarted, Health, Heartbeat, Instance, Registered
from sentinel.core.hub.rollout_row import Row, RowState
from sentinel.core.hub.rollout_state import (
    Abort,
    Acknowledged,
    Analyse,
    Analysed,
    Assign,
    BeginDeploying,
    Command,
    EndDeploying,
    Observed,
    Pause,
    Promote,
    Reported,
    ReportedState,
    Resume,
    Rollback,
    RollbackState,
    Rollout,
    RolloutState,
    SendDeployment,
    Started,
)
from sentinel.core.hub.sync import ActionType, Assignment, Sync
from tests.core.hub.rollout_checker import Advance, RolloutChecker
from tests.core.hub.rollout_driver import NEW, SECOND, START, version

HEARTBEAT = 30 * SECOND
TIMEOUTS = instance.Timeouts()
DEPLOYMENT_TIMEOUT = timedelta(minutes=5)
VERSIONS = {str(each.name): each for each in (NEW, version(1), version(7), version(3, "edge"))}
_BY_USERS: Final[Sequence[rollout_state.Event]] = (Pause(), Promote(), Abort(), Rollback())
Step: TypeAlias = tuple[str, bool]
"""A version, and whether it is a rollback."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How likely what is."""

    loss: float = 0.0
    duplication: float = 0.0
    max_delay: float = 0.1
    """In seconds. Messages with different delays overtake each other."""
    hub_crash: float = 0.0
    """Before each step of the hub is stored, and again before it performs the commands."""
    clock_jump: float = 0.0
    """At each tick, that the hub's clock is set to another time."""
    agent_crash: float = 0.0
    """Before an agent handles a message."""
    bad: float = 0.0
    """That an agent cannot run the new version."""
    reject: float = 0.0
    """That an agent does not accept a step."""
    interference: float = 0.0
    """At each tick, that a user pauses, promotes, aborts or rolls back."""
    regret: float = 0.0
    """That a user rolls back what is over."""


ROUGH: Final = Faults(
    loss=0.2,
    duplication=0.2,
    max_delay=20.0,
    hub_crash=0.01,
    clock_jump=0.003,
    agent_crash=0.005,
    bad=0.003,
    reject=0.003,
    interference=0.003,
    regret=0.2,
)


class World:
    """The time, the network, and who is in it."""

    def __init__(
        self, seed: int, faults: Faults, *, advance: Advance = rollout.advance, hub: type[Hub] | None = None
    ) -> None:
        self.random = Random(seed)  # noqa: S311
        self.faults = faults
        self.now = START
        self._order = count()
        self._queue: list[tuple[datetime, int, Callable[[], None]]] = []
        size = self.random.randint(10, 50)
        self.agents = {f"e{number:02}": Agent(self, f"e{number:02}") for number in range(size)}
        self.hub = (hub or Hub)(self, advance)

    def after(self, duration: timedelta, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + duration, next(self._order), act))

    def send(self, deliver: Callable[[], None]) -> None:
        """Deliver a message, or not, or twice."""
        copies = 0 if self.random.random() < self.faults.loss else 1
        copies += self.random.random() < self.faults.duplication
        for _ in range(copies):
            self.after(SECOND * self.random.uniform(0, self.faults.max_delay), deliver)

    def run(self) -> None:
        """Run until the rollout is over, then without faults until everything has settled."""
        for agent in self.agents.values():
            self.after(HEARTBEAT * self.random.random(), agent.beat)
        self.after(SECOND, self.hub.start)
        self._run_until_over()
        if self.random.random() < self.faults.regret:
            self.hub.insist(Rollback())
            self._run_until_over()
        self.faults = Faults()
        for agent in self.agents.values():
            agent.connect()
        self._run_until(self.now + timedelta(minutes=5), lambda: False)

    def _run_until_over(self) -> None:
        self._run_until(self.now + timedelta(hours=12), lambda: self.hub.is_idle)
        assert self.hub.is_idle, "it is never over"

    def _run_until(self, end: datetime, is_done: Callable[[], bool]) -> None:
        while self._queue and not is_done():
            time, _, act = heapq.heappop(self._queue)
            if time > end:
                heapq.heappush(self._queue, (time, next(self._order), act))
                return
            self.now = time
            act()


class Agent:
    """Applies what it is told, and reports it. What is on its disk survives a crash."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        first = world.random.choice([version(1), version(1), version(7), version(3, "edge")])
        self.running = str(first.name)
        self.is_bad = world.random.random() < world.faults.bad
        self._results: dict[Step, ReportedState] = {}
        """How steps ended; by these it knows what it has done already."""
        self._active: Step | None = None
        self._epoch = 0
        """Grows with every crash: what was begun before is not finished."""
        self._cut_off_until = START

    def connect(self) -> None:
        self._cut_off_until = START

    def cut_off(self, duration: timedelta) -> None:
        self._cut_off_until = self._world.now + duration

    def beat(self) -> None:
        self._world.after(HEARTBEAT, self.beat)
        if self._world.random.random() < 0.01 and self._world.faults.loss:
            self.cut_off(SECOND * self._world.random.uniform(10, 600))
        running = self.running
        self._send(lambda: self._world.hub.heartbeat(self.name, running))

    def receive(self, wanted: Step | None, assigned: str, *, must_report: bool = False) -> None:
        """Take a deployment event, or the answer to a heartbeat."""
        if self._world.now < self._cut_off_until:
            return
        if self._world.random.random() < self._world.faults.agent_crash:
            self._crash()
            return
        if wanted is None:
            if assigned and self._active is None and self._can_run(assigned):
                self.running = assigned
        elif wanted in self._results:
            self._report(wanted, self._results[wanted])
        elif wanted != self._active:
            self._begin(wanted)
        elif must_report:
            self._report(wanted, ReportedState.IN_PROGRESS)

    def _begin(self, step: Step) -> None:
        if self._world.random.random() < self._world.faults.reject:
            self._acknowledge(step, is_accepted=False)
            self._results[step] = ReportedState.FAILED
            return
        self._active = step
        self._acknowledge(step, is_accepted=True)
        epoch, duration = self._epoch, SECOND * self._world.random.uniform(0.1, 20)
        self._world.after(duration, lambda: self._finish(step, epoch))

    def _finish(self, step: Step, epoch: int) -> None:
        if epoch != self._epoch or step != self._active:
            return
        self._active = None
        wanted, is_rollback = step
        if not self._can_run(wanted):
            self._results[step] = ReportedState.FAILED
        else:
            self.running = wanted
            self._results[step] = ReportedState.ROLLED_BACK if is_rollback else ReportedState.COMPLETED
        self._report(step, self._results[step])

    def _can_run(self, wanted: str) -> bool:
        return not (self.is_bad and wanted == str(NEW.name))

    def _crash(self) -> None:
        """An interrupted step has failed: so says the disk."""
        self._epoch += 1
        if self._active is not None:
            self._results[self._active] = ReportedState.FAILED
            self._active = None

    def _acknowledge(self, step: Step, *, is_accepted: bool) -> None:
        event = Acknowledged(self.name, is_accepted=is_accepted, is_rollback=step[1], reason="not now")
        self._send(lambda: self._world.hub.hear(event))

    def _report(self, step: Step, state: ReportedState) -> None:
        event = Reported(self.name, state, is_rollback=step[1])
        self._send(lambda: self._world.hub.hear(event))

    def _send(self, deliver: Callable[[], None]) -> None:
        if self._world.now >= self._cut_off_until:
            self._world.send(deliver)


class Hub:
    """Stores everything, then does it. What it had not done when it was killed, heartbeats repeat."""

    def __init__(self, world: World, advance: Advance) -> None:
        self._world = world
        self._advance = advance
        self._listening_since = START
        self._is_up = True
        self._wanted: list[rollout_state.Event] = []
        """What a user asks for until the hub answers."""
        self._clock_offset = timedelta(0)
        self._instances: dict[str, Instance] = {}
        self._syncs: dict[str, Sync] = {}
        for name, agent in world.agents.items():
            self._instances[name], _ = instance.advance(Instance(), Registered(), START, TIMEOUTS)
            first = VERSIONS[agent.running]
            self._syncs[name] = Sync(assignment=Assignment(first.name, first.hash, START))
        asked = _request(world.random, list(world.agents))
        plan = deployment_plan.plan(asked, [self._facts(name) for name in world.agents])
        created = rollout_state.create("d", asked, plan, to=NEW, deployment_timeout=DEPLOYMENT_TIMEOUT, now=START)
        self.rollout = created
        self._stored = msgspec.json.encode(created)
        self._checker = RolloutChecker(created)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress, and no user waits for an answer."""
        return self.rollout.is_over and not self._wanted

    def assigned(self, name: str) -> TargetVersion | None:
        assignment = self._syncs[name].assignment
        return None if assignment is None else TargetVersion(assignment.version, assignment.hash)

    def start(self) -> None:
        self.insist(Started())
        self._tick()

    def insist(self, event: rollout_state.Event) -> None:
        """Ask for something until it is stored, as a user does whose request fails."""
        self._wanted.append(event)

    def hear(self, event: Acknowledged | Reported) -> None:
        if self._is_up:
            self._step(event)

    def heartbeat(self, name: str, running: str) -> None:
        if not self._is_up:
            return
        now = self._now
        self._instances[name], _ = instance.advance(
            self._instances[name], Heartbeat(Health.HEALTHY), now, TIMEOUTS
        )
        self._syncs[name] = sync.report(self._syncs[name], VERSIONS[running].hash, now)
        self._step(Observed((self._facts(name),)))
        if self._is_up:
            self._answer(name)

    def _answer(self, name: str) -> None:
        """Repeat in the answer to a heartbeat what the agent has to do."""
        step = rollout_queries.deployment_step(self.rollout, name, self._now)
        wanted = None if step is None else (str(step.version), step.is_rollback)
        for action in sync.pending_actions(self._instances[name], self._syncs[name], step):
            assigned, must_report = (
                action.params.get("config_version", ""),
                action.type is ActionType.REPORT_STATUS,
            )
            agent = self._world.agents[name]
            self._world.send(partial(agent.receive, wanted, assigned, must_report=must_report))

    @property
    def _now(self) -> datetime:
        return self._world.now + self._clock_offset

    def _tick(self) -> None:
        """Look at the time: who is silent, what is due."""
        self._world.after(10 * SECOND, self._tick)
        random, faults = self._world.random, self._world.faults
        if random.random() < faults.clock_jump:
            self._clock_offset += SECOND * random.choice([-3600, -300, -20, 20, 300, 3600])
        if not self._is_up:
            return
        self._notice_silence()
        self._pass_time()
        if self._wanted and self._step(self._wanted[0]):
            self._wanted.pop(0)
        if random.random() < faults.interference:
            self.insist(random.choice(_BY_USERS))

    def _notice_silence(self) -> None:
        lost = []
        for name, known in self._instances.items():
            passed = instance.TimePassed(self._listening_since)
            self._instances[name], commands = instance.advance(known, passed, self._now, TIMEOUTS)
            if commands:
                lost.append(self._facts(name))
        if lost:
            self._step(Observed(tuple(lost)))

    def _pass_time(self) -> None:
        current = self.rollout
        deadline = rollout_queries.next_deadline(current, self._listening_since)
        if deadline is not None and self._now >= deadline:
            self._step(rollout_state.TimePassed(self._listening_since))
        elif current.state is RolloutState.PAUSED:
            self._step(Resume())

    def _step(self, event: rollout_state.Event) -> bool:
        """One transaction: state, assignments and instances. Then the messages. It may die before each of both.

        Returns whether the event was handled.
        """
        if not self._is_up:
            return False
        before, now = self.rollout, self._now
        after, commands = self._advance(before, event, now)
        if after is not before and self._dies():
            return False
        self._checker.check(before, event, after, commands, now)
        if after is before:
            return True
        self._store_all(after, commands)
        if not self._dies():
            for command in commands:
                self._perform(command)
        return True

    def _dies(self) -> bool:
        if self._world.random.random() >= self._world.faults.hub_crash:
            return False
        self._is_up = False
        self._world.after(SECOND * self._world.random.uniform(1, 200), self._restart)
        return True

    def _restart(self) -> None:
        self._is_up, self._listening_since = True, self._now
        self.rollout = msgspec.json.decode(self._stored, type=Rollout)

    def _store_all(self, after: Rollout, commands: Sequence[Command]) -> None:
        self.rollout, self._stored = after, msgspec.json.encode(after)
        for command in commands:
            self._store(command)

    def _store(self, command: Command) -> None:
        now = self._now
        match command:
            case Assign():
                wanted = command.version
                assignment = None if wanted is None else Assignment(wanted.name, wanted.hash, now)
                self._syncs[command.instance_id] = sync.assign(self._syncs[command.instance_id], assignment, now)
            case BeginDeploying():
                self._tell(command.instance_id, DeploymentStarted("d"))
            case EndDeploying():
                self._tell(command.instance_id, DeploymentEnded("d", command.outcome))
            case _:
                pass

    def _tell(self, name: str, event: instance.Event) -> None:
        self._instances[name], _ = instance.advance(self._instances[name], event, self._now, TIMEOUTS)

    def _perform(self, command: Command) -> None:
        if isinstance(command, SendDeployment):
            agent, step = self._world.agents[command.instance_id], (str(command.version.name), command.is_rollback)
            self._world.send(lambda: agent.receive(step, ""))
        elif isinstance(command, Analyse):
            bad = [name for name in command.canaries if self._world.agents[name].is_bad]
            outcome = Outcome.FAILED if bad else self._world.random.choice([Outcome.SUCCESS, Outcome.INCONCLUSIVE])
            self._step(Analysed(command.until, Verdict(outcome=outcome)))

    def _facts(self, name: str) -> InstanceFacts:
        known = self._instances[name]
        return InstanceFacts(
            instance_id=name, state=known.state, incarnation=known.incarnation, assigned=self.assigned(name)
        )


class Summary(msgspec.Struct, frozen=True):
    """The result of a run."""

    end: str
    """How the fleet ends."""
    digest: str
    """Equal for equal histories."""


def simulate(
    seed: int, faults: Faults = ROUGH, *, advance: Advance = rollout.advance, hub: type[Hub] | None = None
) -> Summary:
    """Simulate one seed. Raises an error that names the seed."""
    world = World(seed, faults, advance=advance, hub=hub)
    try:
        world.run()
        return Summary(check_end(world), hashlib.sha256(msgspec.json.encode(world.hub.rollout)).hexdigest()[:16])
    except Exception as error:
        error.add_note(f"seed {seed}; repeat with: make sim SEEDS={seed}")
        raise


def _request(random: Random, names: list[str]) -> Request:
    return Request(
        config_id="api",
        version=2,
        targets=Targets(ids=tuple(names)),
        strategy=random.choice(list(Strategy)),
        rolling=Rolling(
            batch_size=Count(random.randint(5, 60), is_percent=True),
            batch_delay=SECOND * random.choice([0, 5, 30]),
            failure_threshold=Count(random.choice([1, 1, 3, len(names)])),
            min_healthy_time=SECOND * random.choice([0, 0, 20]),
        ),
        canary=Canary(instances=Count(2), duration=timedelta(minutes=1)),
    )


def check_end(world: World) -> str:
    """Check that the fleet is all new, all old, or exactly as reported. Return which."""
    rollout_ = world.hub.rollout
    new = str(rollout_.to.name)
    running = {name: agent.running for name, agent in world.agents.items()}
    for name, row in rollout_.rows.items():
        assigned = world.hub.assigned(name)
        assert assigned is not None
        can_run = not (world.agents[name].is_bad and str(assigned.name) == new)
        assert running[name] == str(assigned.name) or not can_run, (name, row.state, running[name])
        assert str(assigned.name) == _expected(row, rollout_), (name, row.state)
    if all(each == new for each in running.values()):
        assert rollout_.state in (RolloutState.COMPLETED, RolloutState.ABORTED)
        return "all new"
    if all(each != new for each in running.values()):
        return "all old"
    return "as reported"


def _expected(row: Row, rollout_: Rollout) -> str:
    """What a user who reads the row expects to run there."""
    was_assigned_later = row.is_assigned_later and rollout_.state is RolloutState.COMPLETED
    is_rolled_back = rollout_.rollback is not RollbackState.NONE
    is_new = row.state is RowState.COMPLETED or (was_assigned_later and not is_rolled_back)
    if rollout_.rollback is RollbackState.COMPLETED:
        assert row.state is not RowState.COMPLETED
    before = row.previous if row.was_sent else row.assigned_earlier if was_assigned_later else row.assigned
    wanted = rollout_.to if is_new else before
    assert wanted is not None
    return str(wanted.name)
