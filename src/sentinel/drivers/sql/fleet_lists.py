"""Lists of resources: which index is walked, and from where.

Every list is a walk along an index from a place: the first page is as cheap as the last, in a fleet of any size.
An offset is turned into a place first, which passes over index entries alone. With a label selector in the order
of creation, the walk is along the labels: one of the requirements leads, and the others are looked up for each
resource that it comes by. In any other order, or along very many values, those selected are sorted, which costs as
much as there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
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

from sentinel.core.labels import Operator, Requirement, as_integer
from sentinel.drivers.sql.statements import Row, Session, Statement, TooLong, Value, literal
from sentinel.drivers.sql.tables import NUMBER, counts, labels, resources
from sentinel.ports.fleet_store import Found, ListQuery, OrderBy, Place

_SHAPES = 512
"""For how many differently shaped queries the statements are kept."""
_LONG = 250
"""How many documents make a long answer."""
FURTHEST = 2**62
"""No list is longer, and no database counts much further."""
_NUMERIC = (Operator.GREATER, Operator.LESS)
_LARGEST_MERGE = 100
"""How many walks are merged, times the conditions in each. More take longer to read than the sorting which they
spare: a hundred values beside thirty other requirements would be half a megabyte of SQL."""
_SAMPLE = 1000
"""Up to how many resources a requirement is counted when it is decided which one leads."""


class _Condition(NamedTuple):
    """A requirement without its values."""

    operator: Operator
    values: int


class _Selection(NamedTuple):
    """Which resources a query is about, without its values."""

    has_parent: bool
    conditions: tuple[_Condition, ...]
    leader: int | None
    """The condition that is walked along; None where the resources themselves are."""


_EVERYTHING = _Selection(has_parent=False, conditions=(), leader=None)


class _Order(NamedTuple):
    by: OrderBy
    is_descending: bool
    has_place: bool
    """Whether it begins behind one."""


class _Stretch(NamedTuple):
    """Which part of which list, without its values."""

    selection: _Selection
    order: _Order
    limit: int


def find(session: Session, query: ListQuery) -> Found:
    """Answers a query."""
    values = _values_of(query)
    conditions = tuple(_Condition(each.operator, len(_operands(each))) for each in query.requirements)
    leader = None if query.parent is not None else _leader(session, conditions, values)
    selection = _Selection(query.parent is not None, conditions, leader)
    place = query.after
    if place is None and query.offset:
        order = _Order(query.order_by, query.is_descending, has_place=False)
        passing = min(query.offset - 1, FURTHEST)
        passed = session.rows(_place_at(selection, order), passed=passing, **values)
        if not passed:
            return Found((), 0, _total(session, selection, values) if query.counts else None, None)
        place = Place(passed[0][0], passed[0][1])
    if place is not None:
        values |= {"after": place.value, "after_id": place.id}
    order = _Order(query.order_by, query.is_descending, has_place=place is not None)
    stretch = _Stretch(selection, order, query.limit)
    if selection == _EVERYTHING and not session.is_snapshot:
        return _everything(session, stretch, values, counts=query.counts)
    total = _total(session, selection, values) if query.counts else None
    if selection == _EVERYTHING:
        pieces, count = _documents_of(session, stretch, values, joins=query.joins and session.joins)
        places = session.rows(_places_at_end(stretch), **values) if count == stretch.limit else ()
        return Found(pieces, count, total, _last(places))
    found = session.rows(_walk(stretch), **values)
    page = found[: stretch.limit]
    last = Place(page[-1][1], page[-1][2]) if len(found) > stretch.limit else None
    return Found([row[0] for row in page], len(page), total, last)


# Of everything, a document without its place is a quarter cheaper to fetch, and looking one place up by the index
# is not.


def _everything(session: Session, stretch: _Stretch, values: Mapping[str, Value], *, counts: bool) -> Found:
    """By one statement, so that it is of one moment."""
    found = session.rows(_all_of(stretch, counts), **values)
    count = len(found)
    while count and found[count - 1][0] is None:
        count -= 1
    documents = [row[0] for row in found[:count]]
    beside = [row[1:] for row in found[count:]]
    total = int(beside.pop()[0]) if counts else None
    return Found(documents, count, total, _last(beside))


def _last(places: Sequence[Row]) -> Place | None:
    """Of the last place and the one behind it: the former, where there is the latter."""
    return Place(places[0][0], places[0][1]) if len(places) > 1 else None


def _total(session: Session, selection: _Selection, values: Mapping[str, Value]) -> int:
    return int(session.rows(_count(selection), **values)[0][0])


def _documents_of(
    session: Session, stretch: _Stretch, values: Mapping[str, Value], *, joins: bool
) -> tuple[Sequence[bytes], int]:
    if joins:
        with suppress(TooLong):
            joined, count = session.rows(_joined(stretch), **values)[0]
            return (joined,) if count else (), count
    documents = [row[0] for row in session.rows(_documents(stretch), **values)]
    return documents, len(documents)


def _values_of(query: ListQuery) -> dict[str, Value]:
    values: dict[str, Value] = {"plural": query.plural}
    if query.parent is not None:
        values["parent"] = query.parent
    for number, requirement in enumerate(query.requirements):
        values[f"key_{number}"] = requirement.key
        values |= {f"value_{number}_{index}": value for index, value in enumerate(_operands(requirement))}
    return values


def _operands(requirement: Requirement) -> Sequence[Value]:
    """What labels are compared with; nothing where no label could compare."""
    if requirement.operator in _NUMERIC:
        bound = as_integer(requirement.values[0])
        return () if bound is None else (bound,)
    return requirement.values


def _leader(session: Session, conditions: Sequence[_Condition], values: Mapping[str, Value]) -> int | None:
    """Of the conditions that say what is there, the one that selects fewest."""
    exact = [number for number, each in enumerate(conditions) if each.operator is Operator.IN]
    if len(exact) > 1:
        return min(exact, key=lambda number: session.rows(_sample(number, conditions[number]), **values)[0][0])
    vague = [number for number, each in enumerate(conditions) if each.operator in (Operator.EXISTS, *_NUMERIC)]
    return next(iter(exact + vague), None)


# --- statements -------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """Where a walk goes along: what it reads, what that selects, and which columns are a place in it."""

    table: FromClause
    where: Sequence[ColumnElement[bool]]
    value: ColumnElement[Any]
    id: ColumnElement[Any]


@lru_cache(_SHAPES)
def _walk(stretch: _Stretch) -> Statement:
    """The documents, each with its place, and one more than the limit where more follow: from one snapshot."""
    selection, order, limit = stretch
    count = literal(limit + 1)
    if selection.leader is None and (not selection.has_parent or order.by is OrderBy.CREATED):
        source = _source(selection, order.by)
        documents = select(resources.c.document, source.value, source.id)
        return Statement(_in_order(documents, source, order).limit(count), is_long=limit >= _LONG)
    # What may have to be sorted is sorted without the documents, which are looked up for those that remain.
    places = _places(selection, order, count).limit(count).subquery("places")
    document = select(resources.c.document).where(resources.c.id == places.c.id).scalar_subquery()
    return Statement(select(document, places.c.value, places.c.id), is_long=limit >= _LONG)


@lru_cache(_SHAPES)
def _documents(stretch: _Stretch) -> Statement:
    return Statement(_in_stretch(stretch, resources.c.document))


@lru_cache(_SHAPES)
def _joined(stretch: _Stretch) -> Statement:
    """One row: the documents with commas between them, and how many they are."""
    documents = _in_stretch(stretch, resources.c.document).subquery("documents")
    joined = cast(func.group_concat(documents.c.document), LargeBinary)
    return Statement(select(joined, func.count()).select_from(documents))


@lru_cache(_SHAPES)
def _places_at_end(stretch: _Stretch) -> Statement:
    return Statement(_at_end(stretch))


@lru_cache(_SHAPES)
def _all_of(stretch: _Stretch, is_counted: bool) -> Statement:
    """Documents, each alone in its row; then what `_at_end` finds, without any; then a total, if wanted."""
    documents = _in_stretch(stretch, resources.c.document).subquery("documents")
    places = _at_end(stretch).subquery("places")
    value, last_id = places.c
    rows = [
        select(documents.c.document, cast(null(), value.type), cast(null(), last_id.type)),
        select(cast(null(), LargeBinary), value, last_id),
    ]
    if is_counted:
        total = cast(_count_of_everything().scalar_subquery(), value.type)
        rows.append(select(cast(null(), LargeBinary), total, cast(null(), last_id.type)))
    return Statement(union_all(*rows), is_long=stretch.limit >= _LONG)


def _in_stretch(stretch: _Stretch, *wanted: ColumnElement[Any]) -> Select[Any]:
    source = _source(stretch.selection, stretch.order.by)
    return _in_order(select(*wanted), source, stretch.order).limit(literal(stretch.limit))


def _at_end(stretch: _Stretch) -> Select[Any]:
    """The last place of the stretch and the one behind it, by the index alone."""
    source = _source(stretch.selection, stretch.order.by)
    places = _in_order(select(source.value.label("value"), source.id.label("last_id")), source, stretch.order)
    return places.limit(literal(2)).offset(literal(stretch.limit - 1))


@lru_cache(_SHAPES)
def _place_at(selection: _Selection, order: _Order) -> Statement:
    """The place behind so many that are passed over by the index."""
    source = _source(selection, order.by)
    places = _in_order(select(source.value, source.id), source, order)
    return Statement(places.limit(literal(1)).offset(bindparam("passed", type_=NUMBER)))


@lru_cache(_SHAPES)
def _count(selection: _Selection) -> Statement:
    if selection == _EVERYTHING:
        return Statement(_count_of_everything())
    source = _source(selection, OrderBy.CREATED)
    return Statement(select(func.count()).select_from(source.table).where(*source.where))


def _count_of_everything() -> Select[Any]:
    return select(func.coalesce(func.sum(counts.c.total), 0)).where(counts.c.plural == bindparam("plural"))


@lru_cache(_SHAPES)
def _sample(number: int, condition: _Condition) -> Statement:
    some = select(labels.c.resource_id).where(*_along(number, condition)).limit(_SAMPLE).subquery()
    return Statement(select(func.count()).select_from(some))


def _source(selection: _Selection, order_by: OrderBy) -> _Source:
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


def _places(selection: _Selection, order: _Order, count: ColumnElement[int]) -> Select[Any]:
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


def _in_order(wanted: Select[Any], source: _Source, order: _Order) -> Select[Any]:
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


def _along(number: int, condition: _Condition) -> list[ColumnElement[bool]]:
    """The labels that fulfil a condition, of all resources of the kind."""
    return [
        labels.c.plural == bindparam("plural"),
        labels.c.key == bindparam(f"key_{number}"),
        _holds(labels.c.number if condition.operator in _NUMERIC else labels.c.value, number, condition),
    ]


def _probes(selection: _Selection, resource_id: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Whether a resource fulfils the conditions that do not lead."""
    return [
        _probe(number, condition, resource_id)
        for number, condition in enumerate(selection.conditions)
        if number != selection.leader
    ]


def _probe(number: int, condition: _Condition, resource_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Looks one label up, for one resource.

    Not by EXISTS, which PostgreSQL takes for a join: of thirty it would spend seconds on the order, and of two it
    may read a whole table for the sake of one page.
    """
    other = labels.alias(f"label_{number}")
    found = (
        select(other.c.number if condition.operator in _NUMERIC else other.c.value)
        .where(other.c.resource_id == resource_id, other.c.key == bindparam(f"key_{number}"))
        .scalar_subquery()
    )
    return _holds(found, number, condition)


def _holds(found: ColumnElement[Any], number: int, condition: _Condition) -> ColumnElement[bool]:
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
