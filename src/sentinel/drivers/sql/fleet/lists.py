"""Lists of resources: which index is walked, and from where.

Every list is a walk along an index from a place: the first page is as cheap as the last, in a fleet of any size.
An offset is turned into a place first, which passes over index entries alone. A whole kind is fetched without the
place of each document, which is a quarter cheaper; the last place is looked up by the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sentinel.core.labels import Operator, Requirement, as_integer
from sentinel.drivers.sql.engine.statements import Row, Session, TooLong, Value
from sentinel.drivers.sql.fleet import list_statements
from sentinel.drivers.sql.fleet.list_statements import (
    EVERYTHING,
    NUMERIC,
    LabelCondition,
    ListOrder,
    ListShape,
    Selection,
)
from sentinel.ports.fleet_store import ListPosition, ListQuery, ListResult

FURTHEST = 2**62
"""No list is longer, and no database counts much further."""


def find(session: Session, query: ListQuery) -> ListResult:
    """Answers a query."""
    values = _values_of(query)
    conditions = tuple(LabelCondition(each.operator, len(_operands(each))) for each in query.requirements)
    leader = None if query.parent is not None else _leader(session, conditions, values)
    selection = Selection(query.parent is not None, conditions, leader)
    place = query.after
    if place is None and query.offset:
        order = ListOrder(query.order_by, query.is_descending, has_place=False)
        passing = min(query.offset - 1, FURTHEST)
        passed = session.rows(list_statements.place_at(selection, order), passed=passing, **values)
        if not passed:
            return ListResult((), 0, _total(session, selection, values) if query.wants_total else None, None)
        place = ListPosition(passed[0][0], passed[0][1])
    if place is not None:
        values |= {"after": place.value, "after_id": place.id}
    order = ListOrder(query.order_by, query.is_descending, has_place=place is not None)
    stretch = ListShape(selection, order, query.limit)
    if selection == EVERYTHING and not session.is_snapshot:
        return _find_at_once(session, stretch, values, counts=query.wants_total)
    total = _total(session, selection, values) if query.wants_total else None
    if selection == EVERYTHING:
        pieces, count = _fetch(session, stretch, values, joins=query.may_join and session.joins)
        places = session.rows(list_statements.places_at_end(stretch), **values) if count == stretch.limit else ()
        return ListResult(pieces, count, total, _last(places))
    found = session.rows(list_statements.documents_with_places(stretch), **values)
    page = found[: stretch.limit]
    last = ListPosition(page[-1][1], page[-1][2]) if len(found) > stretch.limit else None
    return ListResult([row[0] for row in page], len(page), total, last)


def _find_at_once(
    session: Session, stretch: ListShape, values: Mapping[str, Value], *, counts: bool
) -> ListResult:
    """By one statement, so that it is of one moment."""
    found = session.rows(list_statements.page_at_once(stretch, counts), **values)
    count = len(found)
    while count and found[count - 1][0] is None:
        count -= 1
    documents = [row[0] for row in found[:count]]
    beside = [row[1:] for row in found[count:]]
    total = int(beside.pop()[0]) if counts else None
    return ListResult(documents, count, total, _last(beside))


def _last(places: Sequence[Row]) -> ListPosition | None:
    """Of the last place and the one behind it: the former, where there is the latter."""
    return ListPosition(places[0][0], places[0][1]) if len(places) > 1 else None


def _total(session: Session, selection: Selection, values: Mapping[str, Value]) -> int:
    return int(session.rows(list_statements.total(selection), **values)[0][0])


def _fetch(
    session: Session, stretch: ListShape, values: Mapping[str, Value], *, joins: bool
) -> tuple[Sequence[bytes], int]:
    if joins:
        with suppress(TooLong):
            joined, count = session.rows(list_statements.documents_joined(stretch), **values)[0]
            return (joined,) if count else (), count
    documents = [row[0] for row in session.rows(list_statements.documents_alone(stretch), **values)]
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
    if requirement.operator in NUMERIC:
        bound = as_integer(requirement.values[0])
        return () if bound is None else (bound,)
    return requirement.values


def _leader(session: Session, conditions: Sequence[LabelCondition], values: Mapping[str, Value]) -> int | None:
    """Of the conditions that say what is there, the one that selects fewest."""
    exact = [number for number, each in enumerate(conditions) if each.operator is Operator.IN]
    if len(exact) > 1:
        return min(
            exact,
            key=lambda number: session.rows(list_statements.sample(number, conditions[number]), **values)[0][0],
        )
    vague = [number for number, each in enumerate(conditions) if each.operator in (Operator.EXISTS, *NUMERIC)]
    return next(iter(exact + vague), None)
