"""A model-based test of fleet stores: random sequences of transactions are run on a store and on a simple model.

The results of all calls must be equal, even after transactions that fail. Model and store run the same work, so
each operation is written once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from copy import deepcopy
from datetime import datetime
from operator import gt, lt
from typing import ClassVar, Protocol, TypeVar, assert_never

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.core.labels import Operator, Requirement, Selector
from sentinel.core.search import parse
from sentinel.ports.audit import AuditEntry, AuditQuery
from sentinel.ports.database import AlreadyExists
from sentinel.ports.fleet_store import (
    FleetTransaction,
    IdTaken,
    ListPosition,
    ListQuery,
    ListResult,
    LongestWait,
    NameTaken,
    OrderBy,
    StoredResource,
)
from sentinel.ports.idempotency import KeyTaken, StoredResponse
from tests.support.examples import examples
from tests.support.fleet.searches import Tree, holds, trees
from tests.support.fleet.store_records import (
    MOMENT,
    SECOND,
    Stores,
    discarded,
    discarded_of,
    entry,
    expire,
    find,
    generation,
    history_of,
    labeled,
    longest_waits,
    microseconds,
    populations,
    response,
    stored,
)

T = TypeVar("T")

IDS = ("A", "a", "b", "c", "ü")
PLURALS = ("clusters", "nodepools")
NAMES = ("x", "X", "y", "🙂")
ACTORS = ("ops", "dns")
ADAPTERS = ("", "dns", "dns,validation")
TIMES = tuple(MOMENT + number * SECOND for number in range(3))
KEYS = ("region", "size")
VALUES = ("", "a", "7", "10", "007")
READY = "status.conditions.Ready"
SEARCHED = {
    "labels.region": VALUES,
    "labels.size": VALUES,
    "name": NAMES,
    "id": IDS,
    "generation": ("1", "2"),
    READY: ("True", "False"),
}
NO_LIMIT = 1_000


class Abandoned(Exception):
    """Raised by work at its end to abort the transaction."""


class Model:
    """A store of lists and dictionaries without indexes."""

    def __init__(self) -> None:
        self.resources: dict[str, StoredResource] = {}
        self.kept_discarded: list[tuple[str, DiscardedReport]] = []
        self.kept_history: list[tuple[str, GenerationRecord]] = []
        self.kept_audit: list[AuditEntry] = []
        self.responses: dict[tuple[str, str], StoredResponse] = {}

    def lock(self, resource_id: str) -> StoredResource | None:
        return self.resources.get(resource_id)

    def children(self, resource_id: str) -> Sequence[StoredResource]:
        own = [each for each in self.resources.values() if each.parent == resource_id]
        return sorted(own, key=lambda each: (each.created_time, each.id))

    def count_children(self, resource_id: str) -> int:
        return len(self.children(resource_id))

    def insert(self, resource: StoredResource) -> None:
        has_id = resource.id in self.resources
        has_name = any(
            (each.plural, each.parent, each.name) == (resource.plural, resource.parent, resource.name)
            for each in self.resources.values()
        )
        if has_id and has_name:
            raise AlreadyExists
        if has_id:
            raise IdTaken
        if has_name:
            raise NameTaken
        self.resources[resource.id] = resource

    def update(self, resource: StoredResource) -> None:
        self.resources[resource.id] = resource

    def remove(self, resource_id: str) -> None:
        del self.resources[resource_id]
        self.kept_discarded = [kept for kept in self.kept_discarded if kept[0] != resource_id]

    def record_discarded(self, resource_id: str, report: DiscardedReport, *, limit: int) -> None:
        self.kept_discarded.append((resource_id, report))
        surplus = [kept for kept in self.kept_discarded if kept[0] == resource_id][:-limit]
        self.kept_discarded = [kept for kept in self.kept_discarded if kept not in surplus]

    def record_generation(self, resource_id: str, record: GenerationRecord) -> None:
        self.kept_history.append((resource_id, record))

    def record(self, entry: AuditEntry) -> None:
        self.kept_audit.append(entry)

    def recall(self, actor: str, key: str) -> StoredResponse | None:
        return self.responses.get((actor, key))

    def remember(self, response: StoredResponse) -> None:
        if (response.actor, response.key) in self.responses:
            raise KeyTaken
        self.responses[response.actor, response.key] = response

    def find(self, query: ListQuery, search: Tree | None) -> ListResult:
        selected = sorted(
            (position(each, query.order_by), each.document)
            for each in self.resources.values()
            if each.plural == query.plural
            and query.parent in (None, each.parent)
            and Selector(query.requirements).matches(each.labels)
            and (search is None or holds(search, each))
        )
        total = len(selected)
        if query.is_descending:
            selected.reverse()
        if query.after is None:
            selected = selected[query.offset :]
        else:
            after = (query.after.value, query.after.id)
            is_after = lt if query.is_descending else gt
            selected = [each for each in selected if is_after(each[0], after)]
        page = selected[: query.limit]
        while (
            query.max_bytes is not None and len(page) > 1 and sum(len(each) for _, each in page) > query.max_bytes
        ):
            page.pop()
        return ListResult(
            [document for _, document in page],
            len(page),
            total if query.wants_total else None,
            ListPosition(*page[-1][0]) if len(selected) > len(page) else None,
        )

    def discarded(self, resource_id: str) -> list[DiscardedReport]:
        return [report for owner, report in reversed(self.kept_discarded) if owner == resource_id]

    def history(self, resource_id: str) -> list[GenerationRecord]:
        return [record for owner, record in reversed(self.kept_history) if owner == resource_id]

    def audit(self, query: AuditQuery) -> list[AuditEntry]:
        selected = [
            each
            for each in sorted(self.kept_audit, key=lambda each: each.id, reverse=True)
            if (not query.before or each.id < query.before)
            and query.actor in ("", each.actor)
            and query.resource_id in ("", each.resource_id)
        ]
        return selected[: query.limit]

    def populations(self) -> dict[tuple[str, bool], int]:
        return dict(Counter((each.plural, each.is_ready) for each in self.resources.values()))

    def longest_waits(self) -> list[LongestWait]:
        waits = [
            (each.plural, adapter, since)
            for each in self.resources.values()
            for adapter, since in each.waiting.items()
        ]
        kinds = sorted({(plural, adapter) for plural, adapter, _ in waits})
        return [LongestWait(*kind, min(since for *of, since in waits if tuple(of) == kind)) for kind in kinds]

    def expire(self, before: datetime) -> int:
        def size() -> int:
            others = len(self.kept_audit) + len(self.responses)
            return others + len(self.kept_discarded) + len(self.kept_history)

        initial = size()
        newest = [(each, self.history(each)[0]) for each in self.resources if self.history(each)]
        self.kept_audit = [each for each in self.kept_audit if each.time >= before]
        self.kept_discarded = [kept for kept in self.kept_discarded if kept[1].received_time >= before]
        self.kept_history = [kept for kept in self.kept_history if kept[1].time >= before or kept in newest]
        self.responses = {key: kept for key, kept in self.responses.items() if kept.time >= before}
        return initial - size()


def position(resource: StoredResource, order: OrderBy) -> tuple[str | int, str]:
    match order:
        case OrderBy.CREATED:
            return microseconds(resource.created_time), resource.id
        case OrderBy.UPDATED:
            return microseconds(resource.updated_time), resource.id
        case OrderBy.NAME:
            return resource.name, resource.id
        case OrderBy.ID:
            return resource.id, resource.id
        case _:
            assert_never(order)


class Operation(Protocol):
    """A step of the work. Its result must be the same on model and store."""

    def perform(self, fleet: FleetTransaction, step: int) -> object: ...


class Insert(msgspec.Struct, frozen=True):
    resource: StoredResource
    parent: str

    def perform(self, fleet: FleetTransaction, step: int) -> object:
        if not self.parent:
            fleet.insert(self.resource)
            return self.resource
        parent = fleet.lock(self.parent)
        if parent is not None:
            fleet.insert(msgspec.structs.replace(self.resource, parent=parent.id, root=parent.root))
        return parent


class Update(msgspec.Struct, frozen=True):
    like: StoredResource

    def perform(self, fleet: FleetTransaction, step: int) -> object:
        before = fleet.lock(self.like.id)
        if before is not None:
            after = msgspec.structs.replace(
                self.like,
                plural=before.plural,
                name=before.name,
                parent=before.parent,
                root=before.root,
                created_time=before.created_time,
                version=before.version + 1,
                document=b"%s at %d" % (before.id.encode(), step),
            )
            fleet.update(after)
        return before


class Remove(msgspec.Struct, frozen=True):
    id: str

    def perform(self, fleet: FleetTransaction, step: int) -> object:
        before = fleet.lock(self.id)
        if before is None:
            return None
        if fleet.count_children(self.id):
            return list(fleet.children(self.id))
        fleet.remove(self.id)
        return before


class Keep(msgspec.Struct, frozen=True):
    """A discarded report, and a generation."""

    id: str
    limit: int

    def perform(self, fleet: FleetTransaction, step: int) -> object:
        before = fleet.lock(self.id)
        if before is not None:
            fleet.record_discarded(self.id, discarded(step), limit=self.limit)
            fleet.record_generation(self.id, generation(step))
        return before


class Record(msgspec.Struct, frozen=True):
    """An audit entry."""

    id: str
    actor: str

    def perform(self, fleet: FleetTransaction, step: int) -> object:
        fleet.record(entry(step, actor=self.actor, resource_id=self.id))
        return None


class Remember(msgspec.Struct, frozen=True):
    actor: str
    key: str
    checks_first: bool

    def perform(self, fleet: FleetTransaction, step: int) -> object:
        known = fleet.recall(self.actor, self.key)
        if known is None or not self.checks_first:
            fleet.remember(response(self.key, actor=self.actor, time=MOMENT + step * SECOND))
        return known


SOME_ID = st.sampled_from(IDS)
SOME_TIME = st.sampled_from(TIMES)
SOME_ACTOR = st.sampled_from(ACTORS)
SOME_RESOURCE = st.builds(
    stored,
    SOME_ID,
    plural=st.sampled_from(PLURALS),
    name=st.sampled_from(NAMES),
    labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
    created=SOME_TIME,
    updated=SOME_TIME,
    is_ready=st.booleans(),
    waiting=st.dictionaries(st.sampled_from(("dns", "validation")), SOME_TIME),
    adapters=st.sampled_from(ADAPTERS),
    statuses=st.binary(max_size=3),
    attributes=st.fixed_dictionaries(
        {}, optional={"generation": st.sampled_from(("1", "2")), READY: st.sampled_from(("True", "False"))}
    ),
)
SOME_OPERATIONS: st.SearchStrategy[list[Operation]] = st.lists(
    st.builds(Insert, SOME_RESOURCE, st.sampled_from(("", "", *IDS)))
    | st.builds(Update, SOME_RESOURCE)
    | st.builds(Remove, SOME_ID)
    | st.builds(Keep, SOME_ID, st.integers(1, 3))
    | st.builds(Record, SOME_ID, SOME_ACTOR)
    | st.builds(Remember, SOME_ACTOR, st.sampled_from(("k", "K")), st.booleans()),
    min_size=1,
    max_size=5,
)


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    key, operator = draw(st.sampled_from(KEYS)), draw(st.sampled_from(Operator))
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return labeled(key, operator, *draw(st.sets(st.sampled_from(VALUES), min_size=1)))
        case Operator.GREATER | Operator.LESS:
            return labeled(key, operator, draw(st.sampled_from(("0", "7", "8", "10"))))
        case Operator.EXISTS | Operator.NOT_EXISTS:
            return labeled(key, operator)
        case _:
            assert_never(operator)


@st.composite
def queries(draw: st.DrawFn) -> tuple[ListQuery, Tree | None]:
    """Queries, each with its search as a plain tree."""
    search = draw(st.none() | trees(SEARCHED, max_leaves=5))
    order = draw(st.sampled_from(OrderBy))
    # A position is valid even if no resource has these values.
    after = draw(st.none() | SOME_RESOURCE.map(lambda resource: ListPosition(*position(resource, order))))
    query = ListQuery(
        plural=draw(st.sampled_from(PLURALS)),
        search=None if search is None else parse(str(search)),
        parent=draw(st.sampled_from((None, None, "", *IDS))),
        requirements=tuple(draw(st.lists(requirements(), max_size=3))),
        order_by=order,
        is_descending=draw(st.booleans()),
        limit=draw(st.integers(1, 4)),
        after=after,
        offset=0 if after is not None else draw(st.integers(0, 4)),
        wants_total=draw(st.booleans()),
        max_bytes=draw(st.none() | st.integers(1, 60)),
    )
    return query, search


class StoreMachine(RuleBasedStateMachine):
    """Runs random transactions and queries on a store and the model, on one event loop."""

    stores: ClassVar[Stores]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._backend = self._run(self.stores.empty())
        self._store = self._backend.fleet
        self._model = Model()
        self._step = 1

    def _run(self, call: Awaitable[T]) -> T:
        async def run() -> T:
            return await call

        return self._runner.run(run())

    @rule(operations=SOME_OPERATIONS, is_abandoned=st.booleans())
    def transact(self, operations: list[Operation], is_abandoned: bool) -> None:
        first = self._step
        self._step += len(operations)

        def work(fleet: FleetTransaction) -> list[object]:
            done = [operation.perform(fleet, first + number) for number, operation in enumerate(operations)]
            if is_abandoned:
                raise Abandoned
            return done

        staged = deepcopy(self._model)
        expected: object
        try:
            expected = work(staged)
            self._model = staged
        except (AlreadyExists, Abandoned) as error:
            expected = error
        found: object
        try:
            found = self._run(self._store.transact(work))
        except (AlreadyExists, Abandoned) as error:
            found = error

        if isinstance(expected, Exception):
            assert isinstance(found, type(expected))
        else:
            assert found == expected

    @rule(searched=queries())
    def find(self, searched: tuple[ListQuery, Tree | None]) -> None:
        query, search = searched

        assert self._run(find(self._store, query)) == self._model.find(query, search)

    @rule(resource_id=SOME_ID, limit=st.integers(1, 3), offset=st.integers(0, 3))
    def read_records(self, resource_id: str, limit: int, offset: int) -> None:
        reports, records = self._model.discarded(resource_id), self._model.history(resource_id)
        page = slice(offset, offset + limit)

        found_reports = self._run(discarded_of(self._store, resource_id, limit=limit, offset=offset))
        found_records = self._run(history_of(self._store, resource_id, limit=limit, offset=offset))

        assert found_reports == (reports[page], len(reports))
        assert found_records == (records[page], len(records))

    @rule(
        limit=st.integers(1, 4),
        before=st.integers(0, 20),
        actor=st.sampled_from(("", *ACTORS)),
        resource_id=st.sampled_from(("", "", *IDS)),
    )
    def read_audit(self, limit: int, before: int, actor: str, resource_id: str) -> None:
        before_id = entry(before).id if before else ""
        query = AuditQuery(limit=limit, before=before_id, actor=actor, resource_id=resource_id)

        assert list(self._run(self._backend.audit.find(query))) == self._model.audit(query)

    @rule(plural=st.sampled_from(PLURALS), adapters=st.sampled_from(ADAPTERS))
    def read_statistics(self, plural: str, adapters: str) -> None:
        outdated = [
            each.id
            for each in self._model.resources.values()
            if each.plural == plural and each.adapters != adapters
        ]

        assert sorted(self._run(self._store.outdated(plural, adapters, limit=NO_LIMIT))) == sorted(outdated)
        assert self._run(populations(self._store)) == self._model.populations()
        assert self._run(longest_waits(self._store)) == self._model.longest_waits()

    @rule(age=st.integers(0, 10))
    def expire(self, age: int) -> None:
        before = MOMENT + max(0, self._step - age) * SECOND

        expired = self._run(expire(self._store, discarded=before, history=before, limit=NO_LIMIT))
        expired += self._run(self._backend.audit.expire(before, limit=NO_LIMIT))
        expired += self._run(self._backend.idempotency.expire(before, limit=NO_LIMIT))

        assert expired == self._model.expire(before)

    @rule()
    def reopen(self) -> None:
        self._backend = self._run(self.stores.reopened(self._backend))
        self._store = self._backend.fleet

    def teardown(self) -> None:
        try:
            found = {resource_id: self._run(self._store.get(resource_id)) for resource_id in IDS}
            self._run(self._backend.database.close())
        finally:
            self._runner.close()

        assert found == {resource_id: self._model.resources.get(resource_id) for resource_id in IDS}


class ModelContract:
    """A store returns what the model returns."""

    examples: ClassVar[int] = 50
    """The number of random histories; a slow store may use fewer."""

    @pytest.mark.hypothesis
    @pytest.mark.timeout(600)  # Hypothesis may shrink a failing history for five minutes
    def test_any_history_agrees_with_the_model(self, stores: Stores) -> None:
        class Machine(StoreMachine):
            pass

        Machine.stores = stores
        bounds = settings(
            max_examples=examples(self.examples),
            stateful_step_count=20,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )

        run_state_machine_as_test(Machine, settings=bounds)
