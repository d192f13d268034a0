"""A model-based test of the hub's store: random histories are run on a store and on the one in memory.

The results of all calls must be equal, even after transactions that fail. The store in memory runs every work
twice, as if it had lost a race.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import ClassVar, Protocol, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import Rollout, RolloutState
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.core.labels import parse
from sentinel.ports.audit import AuditQuery
from sentinel.ports.database import AlreadyExists
from sentinel.ports.hub_store import (
    Heartbeats,
    HubEventType,
    HubStore,
    HubTransaction,
    InstanceQuery,
    InstanceRecord,
    ReportedStatus,
)
from sentinel.ports.rollout_store import DeploymentQuery
from sentinel.testing.database import Fault
from tests.support.databases import backends
from tests.support.examples import examples
from tests.support.fleet.store_records import MOMENT, SECOND, Stores, entry, response
from tests.support.hub.rollout_records import COUNTED, SOME_DEPLOYMENT, deployment, deployment_event, rows_of
from tests.support.hub.store_records import config, hash_of, instance, version

T = TypeVar("T")

IDS = ("A", "a", "b", "c", "ü")
CONFIGS = ("api", "Api", "web")
NAMES = [VersionName(config_id, number) for config_id in CONFIGS for number in (1, 2)]
HASHES = ["", "00", *map(hash_of, NAMES)]
SELECTORS = (None, "zone=a", "zone!=a", "zone", "!tier,zone in (a,b)")

SOME_ID = st.sampled_from(IDS)
SOME_CONFIG = st.sampled_from(CONFIGS)
SOME_NAME = st.sampled_from(NAMES)
SOME_NUMBER = st.integers(1, 3)
SOME_LIMIT = st.integers(1, 4)
SOME_STATES = st.frozensets(st.sampled_from(State), max_size=3)
SOME_TIME = st.integers(-2, 30).map(lambda number: MOMENT + number * 60 * SECOND)
"""Over six intervals in which samples are thinned out."""
SOME_SAMPLE = st.builds(
    Sample,
    SOME_TIME,
    st.builds(Metrics, requests_total=st.integers(0, 3), latency_p99_ms=st.sampled_from((0.0, 0.1, 2.5))),
)
SOME_INSTANCE = st.builds(
    instance,
    SOME_ID,
    st.sampled_from(State),
    incarnation=SOME_NUMBER,
    session=SOME_NUMBER,
    since=SOME_TIME,
    last_seen=SOME_TIME,
    deadline=st.none() | SOME_TIME,
    labels=st.dictionaries(st.sampled_from(("zone", "tier")), st.sampled_from(("a", "b", "\0"))),
    assigned=st.none() | SOME_NAME,
    reported_hash=st.sampled_from(HASHES),
)
SOME_HEARTBEATS = st.builds(
    Heartbeats,
    instance_id=SOME_ID,
    incarnation=SOME_NUMBER,
    session=SOME_NUMBER,
    last_seen=SOME_TIME,
    message=st.sampled_from(("", "serving", "not\0well")),
    status=st.builds(ReportedStatus, uptime_seconds=st.integers(0, 9), metrics=st.none() | SOME_SAMPLE),
    reported_hash=st.sampled_from(HASHES),
    last_in_sync=st.none() | SOME_TIME,
    samples=st.lists(SOME_SAMPLE, max_size=6),
)


class Abandoned(Exception):
    """The work itself fails."""


class Operation(Protocol):
    """A step of the work. Its result must be the same on both stores."""

    def perform(self, hub: HubTransaction, step: int) -> object: ...


class Save(msgspec.Struct, frozen=True):
    instance: InstanceRecord
    is_kept: bool
    """Whether an instance that is there stays as it is."""

    def perform(self, hub: HubTransaction, step: int) -> object:
        before = hub.instance(self.instance.id)
        if before is None or not self.is_kept:
            hub.save_instance(self.instance)
        return before, hub.instance(self.instance.id)


class Assign(msgspec.Struct, frozen=True):
    instance_id: str
    incarnation: int
    name: VersionName

    def perform(self, hub: HubTransaction, step: int) -> object:
        hub.note_assigned(self.instance_id, self.incarnation, self.name)
        return hub.count_assigned(self.name.config_id)


class AddConfig(msgspec.Struct, frozen=True):
    config_id: str
    checks_first: bool

    def perform(self, hub: HubTransaction, step: int) -> object:
        before = hub.config(self.config_id) if self.checks_first else None
        if before is None:
            hub.add_config(config(self.config_id, step))
        return before


class ChangeConfig(msgspec.Struct, frozen=True):
    config_id: str
    is_removed: bool

    def perform(self, hub: HubTransaction, step: int) -> object:
        before = hub.config(self.config_id)
        if self.is_removed:
            hub.remove_config(self.config_id)
        elif before is not None:
            hub.save_config(config(self.config_id, step))
        return before, hub.config(self.config_id)


class AddVersion(msgspec.Struct, frozen=True):
    name: VersionName
    checks_first: bool

    def perform(self, hub: HubTransaction, step: int) -> object:
        before = hub.version(self.name) if self.checks_first else None
        if before is None:
            hub.add_version(version(self.name.config_id, self.name.number))
        return before, hub.version(self.name)


class Append(msgspec.Struct, frozen=True):
    type: HubEventType
    subject: str

    def perform(self, hub: HubTransaction, step: int) -> object:
        hub.append_event(self.type, self.subject, b"%d" % step, MOMENT + step * SECOND)
        hub.record(entry(step, resource_id=self.subject))
        return None


class Remember(msgspec.Struct, frozen=True):
    key: str
    checks_first: bool

    def perform(self, hub: HubTransaction, step: int) -> object:
        known = hub.recall("ops", self.key)
        if known is None or not self.checks_first:
            hub.remember(response(self.key, time=MOMENT + step * SECOND))
        return known


class Keep(msgspec.Struct, frozen=True):
    config_id: str

    def perform(self, hub: HubTransaction, step: int) -> object:
        return hub.keep_config(self.config_id), hub.is_deploying(self.config_id)


class Deploy(msgspec.Struct, frozen=True):
    """Store a deployment, or its next revision with some of its rows."""

    rollout: Rollout
    selector: str | None
    positions: frozenset[int]

    def perform(self, hub: HubTransaction, step: int) -> object:
        hub.lock_targets()
        before = hub.deployment(self.rollout.id)
        if before is None:
            added = deployment(self.rollout, selector=self.selector)
            hub.add_deployment(added, rows_of(self.rollout))
        else:
            changed = deployment(self.rollout, selector=self.selector, after=before)
            rows = [row for row in rows_of(self.rollout) if row.position in self.positions]
            hub.save_deployment(changed, rows)
            hub.add_deployment_event(deployment_event(self.rollout.id, changed.revision, MOMENT + step * SECOND))
        found = hub.deployment(self.rollout.id)
        rows_after = hub.deployment_rows(self.rollout.id, after=1)
        return before, found, tuple(rows_after), tuple(hub.holdings(COUNTED)), tuple(hub.offers())


SOME_OPERATIONS: st.SearchStrategy[list[Operation]] = st.lists(
    st.builds(Save, SOME_INSTANCE, st.booleans())
    | st.builds(Assign, SOME_ID, SOME_NUMBER, SOME_NAME)
    | st.builds(AddConfig, SOME_CONFIG, st.booleans())
    | st.builds(ChangeConfig, SOME_CONFIG, st.booleans())
    | st.builds(AddVersion, SOME_NAME, st.booleans())
    | st.builds(Keep, SOME_CONFIG)
    | st.builds(
        Deploy, SOME_DEPLOYMENT, st.sampled_from((None, "zone=a", "tier")), st.frozensets(st.integers(0, 3))
    )
    | st.builds(Append, st.sampled_from(HubEventType), SOME_ID)
    | st.builds(Remember, st.sampled_from(("k", "K")), st.booleans()),
    min_size=1,
    max_size=6,
)


class HubStoreMachine(RuleBasedStateMachine):
    """Runs random histories on a store and on the one in memory, on one event loop."""

    stores: ClassVar[Stores]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._backend = self._run(self.stores.empty())
        self._reference = backends.memory(faults=lambda call: Fault.LOST_RACE if call == "transact" else None)
        self._run(self._reference.database.open())
        self._step = 1

    def _run(self, call: Awaitable[T]) -> T:
        async def run() -> T:
            return await call

        return self._runner.run(run())

    def _agree(self, call: Callable[[HubStore], Awaitable[object]]) -> None:
        """Make the same call on both stores, and compare."""
        found, expected = (self._outcome(call(backend.hub)) for backend in (self._backend, self._reference))

        assert found == expected

    def _outcome(self, call: Awaitable[object]) -> object:
        try:
            result = self._run(call)
        except (AlreadyExists, Abandoned) as error:
            return type(error)
        return list(result) if isinstance(result, Sequence) else result

    @rule(operations=SOME_OPERATIONS, is_abandoned=st.booleans())
    def transact(self, operations: list[Operation], is_abandoned: bool) -> None:
        first = self._step
        self._step += len(operations)

        def work(hub: HubTransaction) -> tuple[object, ...]:
            done = [operation.perform(hub, first + number) for number, operation in enumerate(operations)]
            if is_abandoned:
                raise Abandoned
            return tuple(done)

        self._agree(lambda hub: hub.transact(work))

    @rule(heartbeats=st.lists(SOME_HEARTBEATS, max_size=5, unique_by=lambda beats: beats.instance_id))
    def flush(self, heartbeats: list[Heartbeats]) -> None:
        self._agree(lambda hub: hub.flush(heartbeats))

    @rule(
        after=st.sampled_from(("", *IDS)),
        limit=SOME_LIMIT,
        states=SOME_STATES,
        selector=st.sampled_from(SELECTORS),
    )
    def list_instances(self, after: str, limit: int, states: frozenset[State], selector: str | None) -> None:
        matches = None if selector is None else parse(selector).matches
        query = InstanceQuery(after=after, limit=limit, states=states, matches=matches)

        async def page(hub: HubStore) -> object:
            found = await hub.instances(query)
            return tuple(found.instances), found.total, found.is_last

        self._agree(page)

    @rule(instance_ids=st.lists(st.sampled_from((*IDS, "absent"))), limit=SOME_LIMIT)
    def find_instances(self, instance_ids: list[str], limit: int) -> None:
        self._agree(lambda hub: hub.instances_by_id(instance_ids))
        self._agree(lambda hub: hub.out_of_sync(limit=limit))
        self._agree(lambda hub: hub.count_by_state())

    @rule(limit=SOME_LIMIT, silent=SOME_TIME, offline=SOME_TIME, drain=SOME_TIME)
    def sweep(self, limit: int, silent: datetime, offline: datetime, drain: datetime) -> None:
        self._agree(lambda hub: hub.silent(silent, limit=limit))
        self._agree(lambda hub: hub.leaving(offline_before=offline, drain_before=drain, limit=limit))

    @rule(instance_id=SOME_ID, since=SOME_TIME, limit=SOME_LIMIT)
    def read_metrics(self, instance_id: str, since: datetime, limit: int) -> None:
        self._agree(lambda hub: hub.metrics(instance_id, since=since, limit=limit))

    @rule(before=SOME_TIME, limit=st.integers(1, 9))
    def thin_metrics(self, before: datetime, limit: int) -> None:
        self._agree(lambda hub: hub.thin_metrics(before, limit=limit))

    @rule(before=SOME_TIME, limit=SOME_LIMIT)
    def expire_metrics(self, before: datetime, limit: int) -> None:
        self._agree(lambda hub: hub.expire_metrics(before, limit=limit))

    @rule(instance_id=SOME_ID, incarnation=SOME_NUMBER, name=SOME_NAME, limit=SOME_LIMIT)
    def read_configs(self, instance_id: str, incarnation: int, name: VersionName, limit: int) -> None:
        self._agree(lambda hub: hub.was_assigned(instance_id, incarnation, name))
        self._agree(lambda hub: hub.version(name))
        self._agree(lambda hub: hub.versions(name.config_id, before=None, limit=limit))
        self._agree(lambda hub: hub.versions(name.config_id, before=name.number, limit=limit))
        self._agree(lambda hub: hub.config(name.config_id))
        self._agree(lambda hub: hub.configs(after=name.config_id, limit=limit))
        self._agree(lambda hub: hub.assigned_counts(CONFIGS))
        self._agree(lambda hub: hub.count_configs())

    @rule(
        rollout=SOME_DEPLOYMENT,
        after=st.integers(-1, 3),
        limit=SOME_LIMIT,
        states=st.frozensets(st.sampled_from(RolloutState), max_size=2),
        row_states=st.frozensets(st.sampled_from(RowState), max_size=2),
    )
    def read_deployments(
        self,
        rollout: Rollout,
        after: int,
        limit: int,
        states: frozenset[RolloutState],
        row_states: frozenset[RowState],
    ) -> None:
        async def read(hub: HubStore) -> object:
            found = await hub.rollout(rollout.id, after=after)
            return None if found is None else (found.deployment, tuple(found.rows))

        self._agree(read)
        self._agree(lambda hub: hub.deployment(rollout.id))
        self._agree(lambda hub: hub.deployments(DeploymentQuery(before=rollout.id, limit=limit, states=states)))
        self._agree(lambda hub: hub.deployments(DeploymentQuery(limit=limit)))
        self._agree(lambda hub: hub.count_deployments(states))
        self._agree(lambda hub: hub.deployment_rows(rollout.id, after=after, limit=limit, states=row_states))
        self._agree(lambda hub: hub.active_deployments())
        self._agree(lambda hub: hub.deployment_events(rollout.id, after=after, limit=limit))

    @rule(after=st.integers(0, 20), limit=SOME_LIMIT)
    def read_events(self, after: int, limit: int) -> None:
        self._agree(lambda hub: hub.events(after, limit=limit))
        self._agree(lambda hub: hub.newest_event())
        self._agree(lambda hub: hub.oldest_event())

    @rule(age=st.integers(0, 10), limit=SOME_LIMIT)
    def expire_events(self, age: int, limit: int) -> None:
        before = MOMENT + max(0, self._step - age) * SECOND
        self._agree(lambda hub: hub.expire_events(before, limit=limit))

    @rule(age=st.integers(0, 10), limit=SOME_LIMIT)
    def expire_removed(self, age: int, limit: int) -> None:
        before = MOMENT + max(0, self._step - age) * SECOND
        self._agree(lambda hub: hub.expire_removed(before, limit=limit))

    @rule()
    def reopen(self) -> None:
        self._backend = self._run(self.stores.reopened(self._backend))

    def teardown(self) -> None:
        try:
            self._agree(lambda hub: hub.instances_by_id(IDS))
            self._agree(lambda hub: hub.events(0, limit=1_000))
            for instance_id in IDS:
                self._agree(self._all_samples(instance_id))
            audited = [
                list(self._run(backend.audit.find(AuditQuery(limit=1_000))))
                for backend in (self._backend, self._reference)
            ]
            self._run(self._backend.database.close())
        finally:
            self._runner.close()

        assert audited[0] == audited[1]

    def _all_samples(self, instance_id: str) -> Callable[[HubStore], Awaitable[object]]:
        return lambda hub: hub.metrics(instance_id, since=MOMENT - 999 * SECOND, limit=1_000)


class HubModelContract:
    """A store returns what the one in memory returns."""

    examples: ClassVar[int] = 50
    """The number of random histories."""

    @pytest.mark.hypothesis
    @pytest.mark.timeout(600)  # Hypothesis may shrink a failing history for five minutes
    def test_any_history_agrees_with_the_store_in_memory(self, stores: Stores) -> None:
        class Machine(HubStoreMachine):
            pass

        Machine.stores = stores
        bounds = settings(
            max_examples=examples(self.examples),
            stateful_step_count=25,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )

        run_state_machine_as_test(Machine, settings=bounds)
