"""The statements that lists are made of, each written once for all queries of a shape.

A shape is a query without its values: which order, from a place or not, by which kinds of label requirements.
With a label selector in the order of creation, a walk goes along the labels: one of the requirements leads, and
the others are looked up for each resource that it comes by. In any other order, or along very many values, those
selected are sorted, which costs as much as there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, assert_never

from sqlalchemy import (
    ColumnElement,
    LargeBinary,
    Select,
    bindparam,
    cast,
    false,
    func,
    null,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.sql import FromClause

from sentinel.core.labels import Operator
from sentinel.drivers.sql.engine.columns import NUMBER
from sentinel.drivers.sql.engine.statements import Statement, literal
from sentinel.drivers.sql.fleet.tables import counts, labels, resources
from sentinel.ports.fleet_store import OrderBy

_SHAPES = 512
"""For how many differently shaped queries the statements are kept."""
NUMERIC = (Operator.GREATER, Operator.LESS)
_LARGEST_MERGE = 100
"""How many walks are merged, times the conditions in each. More take longer to read than the sorting which they
spare: a hundred values beside thirty other requirements would be half a megabyte of SQL."""
_SAMPLE = 1000
"""Up to how many resources a requirement is counted when it is decided which one leads."""


class LabelCondition(NamedTuple):
    """A requirement without its values."""

    operator: Operator
    values: int


class Selection(NamedTuple):
    """Which resources a query is about, without its values."""

    has_parent: bool
    conditions: tuple[LabelCondition, ...]
    leader: int | None
    """The condition that is walked along; None where the resources themselves are."""


EVERYTHING = Selection(has_parent=False, conditions=(), leader=None)


class ListOrder(NamedTuple):
    by: OrderBy
    is_descending: bool
    has_place: bool
    """Whether it begins behind one."""


class ListShape(NamedTuple):
    """Which part of which list, without its values."""

    selection: Selection
    order: ListOrder
    limit: int


class _Source(NamedTuple):
    """Where a walk goes along: what it reads, what that selects, and which columns are a place in it."""

    table: FromClause
    where: Sequence[ColumnElement[bool]]
    value: ColumnElement[Any]
    id: ColumnElement[Any]


@lru_cache(_SHAPES)
def documents_with_places(stretch: ListShape) -> Statement:
    """The documents, each with its place, and one more than the limit where more follow: from one snapshot."""
    selection, order, limit = stretch
    count = literal(limit + 1)
    if selection.leader is None and (not selection.has_parent or order.by is OrderBy.CREATED):
        source = _source(selection, order.by)
        documents = select(resources.c.document, source.value, source.id)
        return Statement(_in_order(documents, source, order).limit(count))
    # What may have to be sorted is sorted without the documents, which are looked up for those that remain.
    places = _places(selection, order, count).limit(count).subquery("places")
    document = select(resources.c.document).where(resources.c.id == places.c.id).scalar_subquery()
    return Statement(select(document, places.c.value, places.c.id))


@lru_cache(_SHAPES)
def documents_alone(stretch: ListShape) -> Statement:
    return Statement(_in_stretch(stretch, resources.c.document))


@lru_cache(_SHAPES)
def documents_joined(stretch: ListShape) -> Statement:
    """One row: the documents with commas between them, and how many they are."""
    documents = _in_stretch(stretch, resources.c.document).subquery("documents")
    # In the order of the subquery: SQLite keeps it without promising to, and the contract suite would notice.
    joined = cast(func.group_concat(documents.c.document), LargeBinary)
    return Statement(select(joined, func.count()).select_from(documents))


@lru_cache(_SHAPES)
def places_at_end(stretch: ListShape) -> Statement:
    return Statement(_at_end(stretch))


@lru_cache(_SHAPES)
def page_at_once(stretch: ListShape, is_counted: bool) -> Statement:
    """Documents, each alone in its row; then what `_at_end` finds, without any; then a total, if wanted."""
    documents = _in_stretch(stretch, resources.c.document).subquery("documents")
    places = _at_end(stretch).subquery("places")
    value, last_id = places.c
    rows = [
        select(documents.c.document, cast(null(), value.type), cast(null(), last_id.type)),
        select(cast(null(), LargeBinary), value, last_id),
    ]
    if is_counted:
        counted = cast(_count_of_everything().scalar_subquery(), value.type)
        rows.append(select(cast(null(), LargeBinary), counted, cast(null(), last_id.type)))
    # The parts come in turn: without parallel workers, which none of our connections has, they are appended as
    # written.
    return Statement(union_all(*rows))


def _in_stretch(stretch: ListShape, *wanted: ColumnElement[Any]) -> Select[Any]:
    source = _source(stretch.selection, stretch.order.by)
    return _in_order(select(*wanted), source, stretch.order).limit(literal(stretch.limit))


def _at_end(stretch: ListShape) -> Select[Any]:
    """The last place of the stretch and the one behind it, by the index alone."""
    source = _source(stretch.selection, stretch.order.by)
    places = _in_order(select(source.value.label("value"), source.id.label("last_id")), source, stretch.order)
    return places.limit(literal(2)).offset(literal(stretch.limit - 1))


@lru_cache(_SHAPES)
def place_at(selection: Selection, order: ListOrder) -> Statement:
    """The place behind so many that are passed over by the index."""
    source = _source(selection, order.by)
    places = _in_order(select(source.value, source.id), source, order)
    return Statement(places.limit(literal(1)).offset(bindparam("passed", type_=NUMBER)))


@lru_cache(_SHAPES)
def total(selection: Selection) -> Statement:
    if selection == EVERYTHING:
        return Statement(_count_of_everything())
    source = _source(selection, OrderBy.CREATED)
    return Statement(select(func.count()).select_from(source.table).where(*source.where))


def _count_of_everything() -> Select[Any]:
    return select(func.coalesce(func.sum(counts.c.total), 0)).where(counts.c.plural == bindparam("plural"))


@lru_cache(_SHAPES)
def sample(number: int, condition: LabelCondition) -> Statement:
    some = select(labels.c.resource_id).where(*_along(number, condition)).limit(_SAMPLE).subquery()
    return Statement(select(func.count()).select_from(some))


def _source(selection: Selection, order_by: OrderBy) -> _Source:
    leader = selection.leader
    if leader is None:
        where: list[ColumnElement[bool]] = [resources.c.plural == bindparam("plural")]
        if selection.has_parent:
            where.append(resources.c.parent == bindparam("parent"))
        where += _probes(selection, resources.c.id)
        return _Source(resources, where, resources.c[order_by.value], resources.c.id)
    where = [*_along(leader, selection.conditions[leader]), *_probes(selection, labels.c.resource_id)]
    if order_by is OrderBy.CREATED:
        return _Source(labels, where, labels.c.created_time, labels.c.resource_id)
    if order_by is OrderBy.ID:
        return _Source(labels, where, labels.c.resource_id, labels.c.resource_id)
    both = labels.join(resources, resources.c.id == labels.c.resource_id)
    return _Source(both, where, resources.c[order_by.value], resources.c.id)


def _places(selection: Selection, order: ListOrder, count: ColumnElement[int]) -> Select[Any]:
    """The places of those selected, in order; where several values lead, at least the first so many."""
    leader = selection.leader
    values = 0 if leader is None else selection.conditions[leader].values
    is_mergeable = order.by is OrderBy.CREATED and values * len(selection.conditions) <= _LARGEST_MERGE
    if values < 2 or not is_mergeable:
        source = _source(selection, order.by)
        return _in_order(select(source.value.label("value"), source.id.label("id")), source, order)
    # Along each value they are in order, all together they are not: so each is walked, and what is found merged.
    walks = []
    for index in range(values):
        where = [
            labels.c.plural == bindparam("plural"),
            labels.c.key == bindparam(f"key_{leader}"),
            labels.c.value == bindparam(f"value_{leader}_{index}"),
            *_probes(selection, labels.c.resource_id),
        ]
        source = _Source(labels, where, labels.c.created_time, labels.c.resource_id)
        one = _in_order(select(source.value.label("value"), source.id.label("id")), source, order)
        walks.append(select(one.limit(count).subquery()))
    merged = union_all(*walks).subquery("merged")
    columns = (merged.c.value, merged.c.id)
    return select(*columns).order_by(*(each.desc() if order.is_descending else each for each in columns))


def _in_order(wanted: Select[Any], source: _Source, order: ListOrder) -> Select[Any]:
    is_single = order.by is OrderBy.ID
    wanted = wanted.select_from(source.table).where(*source.where)
    if order.has_place:
        here: Any = source.id if is_single else tuple_(source.value, source.id)
        place: Any = bindparam("after_id")
        if not is_single:
            place = tuple_(
                bindparam("after", type_=source.value.type), bindparam("after_id", type_=source.id.type)
            )
        wanted = wanted.where(here < place if order.is_descending else here > place)
    columns = [source.id] if is_single else [source.value, source.id]
    return wanted.order_by(*(column.desc() if order.is_descending else column for column in columns))


def _along(number: int, condition: LabelCondition) -> list[ColumnElement[bool]]:
    """The labels that fulfil a condition, of all resources of the kind."""
    return [
        labels.c.plural == bindparam("plural"),
        labels.c.key == bindparam(f"key_{number}"),
        _holds(labels.c.number if condition.operator in NUMERIC else labels.c.value, number, condition),
    ]


def _probes(selection: Selection, resource_id: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Whether a resource fulfils the conditions that do not lead."""
    return [
        _probe(number, condition, resource_id)
        for number, condition in enumerate(selection.conditions)
        if number != selection.leader
    ]


def _probe(number: int, condition: LabelCondition, resource_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Looks one label up, for one resource.

    Not by EXISTS, which PostgreSQL takes for a join: of thirty it would spend seconds on the order, and of two it
    may read a whole table for the sake of one page.
    """
    other = labels.alias(f"label_{number}")
    found = (
        select(other.c.number if condition.operator in NUMERIC else other.c.value)
        .where(other.c.resource_id == resource_id, other.c.key == bindparam(f"key_{number}"))
        .scalar_subquery()
    )
    return _holds(found, number, condition)


def _holds(found: ColumnElement[Any], number: int, condition: LabelCondition) -> ColumnElement[bool]:
    """Whether a condition holds for what was found: a label's value, or the number in it, or null for none."""
    values = [bindparam(f"value_{number}_{index}", type_=found.type) for index in range(condition.values)]
    one_of = found.in_(values) if len(values) > 1 else found == values[0] if values else false()
    match condition.operator:
        case Operator.IN:
            return one_of
        case Operator.NOT_IN:
            return one_of.is_not(true())
        case Operator.EXISTS:
            return found.is_not(None)
        case Operator.NOT_EXISTS:
            return found.is_(None)
        case Operator.GREATER:
            return found > values[0] if values else false()
        case Operator.LESS:
            return found < values[0] if values else false()
        case _:
            assert_never(condition.operator)
