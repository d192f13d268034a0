"""Lists of resources: chooses the index to scan, and where to start.

Every list scans an index from a position, so the last page costs as much as the first, in a fleet of any size. An
offset is first converted to a position, which skips index entries only. For an unfiltered list, reading the
documents without their positions is a quarter cheaper; the last position is then looked up in the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sentinel.core import search
from sentinel.core.labels import Operator, Requirement, as_integer
from sentinel.core.search import Comparison, Expression, FieldKind
from sentinel.drivers.sql.engine.statements import Row, Session, SqlValue, TooLong
from sentinel.drivers.sql.fleet import list_statements
from sentinel.drivers.sql.fleet.list_statements import (
    EVERYTHING,
    NUMERIC,
    SAMPLE_SIZE,
    Condition,
    Filter,
    ListOrder,
    ListShape,
    Selection,
    Term,
)
from sentinel.ports.fleet_store import ListPosition, ListQuery, ListResult

MAX_OFFSET = 2**62
"""Larger offsets are cut to this: no list is longer, and both databases can represent it."""


def find(session: Session, query: ListQuery) -> ListResult:
    """Run a query."""
    terms, values = _terms(query)
    driving = None if query.parent is not None else _choose_driving(session, terms, values)
    selection = Selection(query.parent is not None, terms, driving)
    position = query.after
    if position is None and query.offset:
        order = ListOrder(query.order_by, query.is_descending, has_position=False)
        skipped = min(query.offset - 1, MAX_OFFSET)
        found = session.rows(list_statements.position_at_offset(selection, order), skipped=skipped, **values)
        if not found:
            return ListResult((), 0, _total(session, selection, values) if query.wants_total else None, None)
        position = ListPosition(found[0][0], found[0][1])
    if position is not None:
        values |= {"after": position.value, "after_id": position.id}
    values["max_bytes"] = query.max_bytes
    order = ListOrder(query.order_by, query.is_descending, has_position=position is not None)
    shape = ListShape(selection, order, query.limit)
    if selection == EVERYTHING and not session.has_snapshot:
        return _find_in_one_statement(session, shape, values, query)
    total = _total(session, selection, values) if query.wants_total else None
    if query.may_join and session.joins_bytes and shape.can_look_back:
        with suppress(TooLong):
            return _find_joined(session, shape, values, total, query.max_bytes)
    return _find_rows(session, shape, values, total, query.max_bytes)


def _find_in_one_statement(
    session: Session, shape: ListShape, values: Mapping[str, SqlValue], query: ListQuery
) -> ListResult:
    """Read an unfiltered list with one statement, so that all parts come from one snapshot."""
    is_bounded = query.max_bytes is not None
    statement = list_statements.page_in_one_statement(shape, wants_total=query.wants_total, is_bounded=is_bounded)
    found = session.rows(statement, **values)
    count = len(found)
    while count and found[count - 1][0] is None:
        count -= 1
    documents = [row[0] for row in found[:count]]
    rest = [row[1:] for row in found[count:]]
    total = int(rest.pop()[0]) if query.wants_total else None
    if is_bounded and not count:
        return _find_rows(session, shape, values, total, query.max_bytes)
    return ListResult(documents, count, total, _last(rest))


def _find_joined(
    session: Session, shape: ListShape, values: Mapping[str, SqlValue], total: int | None, max_bytes: int | None
) -> ListResult:
    """Read the documents as one value. Raises `TooLong`."""
    statement = list_statements.documents_joined(shape)
    if max_bytes is None:
        found = session.rows(statement, **values)
    else:
        found = session.rows_of_short_values(statement, max_bytes, **values)
    joined, count = found[0][:2]
    positions = session.rows(list_statements.last_positions(shape), **values) if count == shape.limit else ()
    return ListResult((joined,) if count else (), count, total, _last(positions))


def _find_rows(
    session: Session, shape: ListShape, values: Mapping[str, SqlValue], total: int | None, max_bytes: int | None
) -> ListResult:
    if max_bytes is None:
        found = session.rows(list_statements.documents_with_positions(shape), **values)
    else:
        can_stop = session.can_stop_reading
        build = list_statements.documents_with_positions if can_stop else list_statements.documents_within
        found = session.rows_within(build(shape), max_bytes, **values)
    page = [row for row in found[: shape.limit] if row[0] is not None]
    last = ListPosition(page[-1][1], page[-1][2]) if len(found) > len(page) else None
    return ListResult([row[0] for row in page], len(page), total, last)


def _last(positions: Sequence[Row]) -> ListPosition | None:
    """The position of the page's last resource, or None if no other follows it."""
    return ListPosition(positions[0][0], positions[0][1]) if len(positions) > 1 else None


def _total(session: Session, selection: Selection, values: Mapping[str, SqlValue]) -> int:
    return int(session.rows(list_statements.total(selection), **values)[0][0])


def _terms(query: ListQuery) -> tuple[tuple[Term, ...], dict[str, SqlValue]]:
    """The terms of a query, and the values of all parameters."""
    values: dict[str, SqlValue] = {"plural": query.plural}
    if query.parent is not None:
        values["parent"] = query.parent
    count = 0

    def condition(kind: FieldKind, key: str, operator: Operator, operands: Sequence[SqlValue]) -> Condition:
        nonlocal count
        number, count = count, count + 1
        values[f"key_{number}"] = key
        values.update({f"value_{number}_{index}": value for index, value in enumerate(operands)})
        return Condition(number, kind, operator, len(operands))

    def term(expression: Expression) -> Term:
        if isinstance(expression, Comparison):
            operator = Operator.NOT_IN if expression.is_negated else Operator.IN
            return condition(expression.field.kind, expression.field.key, operator, expression.values)
        is_any = isinstance(expression, search.AnyOf)
        return Filter(is_any, tuple(term(each) for each in expression.operands))

    required = [
        condition(FieldKind.LABEL, each.key, each.operator, _operands(each)) for each in query.requirements
    ]
    searched = [term(each) for each in search.conjuncts(query.search)]
    return (*required, *searched), values


def _operands(requirement: Requirement) -> Sequence[SqlValue]:
    """The values that labels are compared with; empty if no label can match."""
    if requirement.operator in NUMERIC:
        bound = as_integer(requirement.values[0])
        return () if bound is None else (bound,)
    return requirement.values


def _choose_driving(session: Session, terms: Sequence[Term], values: Mapping[str, SqlValue]) -> Condition | None:
    """Choose the most selective of the conditions that an index scan can start from."""
    conditions = [each for each in terms if isinstance(each, Condition)]
    exact = [each for each in conditions if each.is_exact]
    named = [each for each in exact if each.kind is FieldKind.NAME]
    if len(exact) > 1 or named:
        counts = {each: int(session.rows(list_statements.sampled_count(each), **values)[0][0]) for each in exact}
        # What a name finds has to be sorted, so it must not find many: each parent may have a child of that name.
        exact = [each for each in exact if each not in named or counts[each] < SAMPLE_SIZE]
        return min(exact, key=counts.__getitem__, default=None)
    others = [each for each in conditions if each.operator in (Operator.EXISTS, *NUMERIC)]
    return next(iter(exact + others), None)
