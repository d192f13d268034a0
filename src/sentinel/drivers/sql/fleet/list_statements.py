"""The statements for lists, one per shape of query.

A shape is a query without its values: its order, whether it starts at a position, and the operators of its
conditions. With a label selector and the order of creation, a statement scans the index of the labels: one
condition drives the scan, and the others are looked up for each resource that it finds. In any other order, or
with very many values, all selected resources are sorted.

A search adds conditions on labels and attributes, which may drive a scan too, conditions on id and name, and
filters that join conditions by "and" and "or". A condition on something that a resource does not have may be NULL
instead of false. No "not" stands above it, so that makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, assert_never

from sqlalchemy import (
    ColumnElement,
    LargeBinary,
    Select,
    Table,
    and_,
    bindparam,
    case,
    cast,
    false,
    func,
    null,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.sql import FromClause

from sentinel.core.labels import Operator
from sentinel.core.search import FieldKind
from sentinel.drivers.sql.engine.columns import NUMBER
from sentinel.drivers.sql.engine.statements import Statement, literal
from sentinel.drivers.sql.fleet.tables import attributes, counts, labels, resources
from sentinel.ports.fleet_store import OrderBy

_MAX_SHAPES = 512
"""How many compiled statements each function caches."""
NUMERIC = (Operator.GREATER, Operator.LESS)
_MAX_MERGED_CONDITIONS = 100
"""The number of merged scans times the conditions in each. Parsing more takes longer than the sort that it saves:
a hundred values with thirty other requirements would be half a megabyte of SQL."""
SAMPLE_SIZE = 1000
"""Where counting stops when conditions are compared to choose the driving one."""


class Condition(NamedTuple):
    """A requirement or a comparison without its values. Its number tells the names of its parameters."""

    number: int
    kind: FieldKind
    operator: Operator
    values: int

    @property
    def is_exact(self) -> bool:
        return self.operator is Operator.IN


class Filter(NamedTuple):
    """Conditions and filters, of which all must hold, or any."""

    is_any: bool
    operands: tuple[Condition | Filter, ...]

    @property
    def size(self) -> int:
        """The number of conditions."""
        return sum(each.size if isinstance(each, Filter) else 1 for each in self.operands)


Term: TypeAlias = Condition | Filter


class Selection(NamedTuple):
    """The filter of a query, without its values."""

    has_parent: bool
    terms: tuple[Term, ...]
    """All of them must hold."""
    driving: Condition | None
    """The one of the terms whose index is scanned; None to scan the resources in order."""

    @property
    def others(self) -> tuple[Term, ...]:
        """The terms that are tested for each resource that the scan finds."""
        return tuple(each for each in self.terms if each != self.driving)


EVERYTHING = Selection(has_parent=False, terms=(), driving=None)


class ListOrder(NamedTuple):
    by: OrderBy
    is_descending: bool
    has_position: bool
    """Whether the list starts after a position."""


class ListShape(NamedTuple):
    """A query without its values."""

    selection: Selection
    order: ListOrder
    limit: int

    @property
    def can_look_back(self) -> bool:
        """Whether finding the page's last position again is cheap: an index has it, and nothing is tested."""
        (has_parent, _, driving), is_by_creation = self.selection, self.order.by is OrderBy.CREATED
        if self.selection.others:
            return False
        if driving is None:
            return is_by_creation or not has_parent
        # One value of a label or attribute. Several are merged, and others are sorted.
        return is_by_creation and driving.values == 1 and driving.is_exact and _indexed(driving) is not resources


class _IndexScan(NamedTuple):
    """The table that a statement scans, its conditions, and the columns that form a position."""

    table: FromClause
    where: Sequence[ColumnElement[bool]]
    value: ColumnElement[Any]
    id: ColumnElement[Any]


@lru_cache(_MAX_SHAPES)
def documents_with_positions(shape: ListShape) -> Statement:
    """Documents with their positions, one more than the limit if more follow."""
    return Statement(_documents_with_positions(shape))


@lru_cache(_MAX_SHAPES)
def documents_within(shape: ListShape) -> Statement:
    """The same, but null in place of the documents that exceed `max_bytes` together with those before them.

    The first document is never null.
    """
    # The limit keeps PostgreSQL from evaluating the document once for each use.
    page = _documents_with_positions(shape).limit(literal(shape.limit + 1)).subquery("page")
    document, value, resource_id = page.c
    length = func.length(document)  # PostgreSQL does not fetch a document from the TOAST table for its length
    total = func.sum(length).over(rows=(None, 0)).label("bytes")
    summed = select(document.label("document"), value, resource_id, length.label("length"), total).subquery(
        "summed"
    )
    fits = or_(summed.c.bytes <= bindparam("max_bytes", type_=NUMBER), summed.c.bytes == summed.c.length)
    return Statement(select(case((fits, summed.c.document)), summed.c[value.name], summed.c[resource_id.name]))


def _documents_with_positions(shape: ListShape) -> Select[Any]:
    selection, order, limit = shape
    count = literal(limit + 1)
    if selection.driving is None and (not selection.has_parent or order.by is OrderBy.CREATED):
        scan = _index_scan(selection, order.by)
        documents = select(resources.c.document, scan.value.label("value"), scan.id.label("position_id"))
        return _ordered(documents, scan, order).limit(count)
    # Sort positions without the documents, then look up the documents of those that remain.
    positions = _positions(selection, order, count).limit(count).subquery("positions")
    return select(_document_at(positions), positions.c.value, positions.c.id)


def _document_at(positions: FromClause) -> ColumnElement[Any]:
    document = select(resources.c.document).where(resources.c.id == positions.c.id)
    return document.scalar_subquery().label("document")


@lru_cache(_MAX_SHAPES)
def documents_only(shape: ListShape) -> Statement:
    return Statement(_page(shape))


@lru_cache(_MAX_SHAPES)
def documents_joined(shape: ListShape) -> Statement:
    """One row: the documents joined by commas, and their count. Only for shapes that `can_look_back`."""
    documents = _page(shape).subquery("documents")
    # SQLite joins in the order of the subquery. It does not promise to, but the contract suite checks it.
    joined = cast(func.group_concat(documents.c.document), LargeBinary)
    return Statement(select(joined, func.count()).select_from(documents))


@lru_cache(_MAX_SHAPES)
def last_positions(shape: ListShape) -> Statement:
    """Only for shapes that `can_look_back`."""
    return Statement(_last_positions(shape))


@lru_cache(_MAX_SHAPES)
def page_in_one_statement(shape: ListShape, *, wants_total: bool, is_bounded: bool) -> Statement:
    """Rows with a document only, then the rows of `_last_positions`, then a row with the total if wanted.

    With `is_bounded`, there are no documents if they exceed `max_bytes` together.
    """
    page = _page(shape)
    if is_bounded:
        # Evaluated first and once. A page of the usual size costs a tenth more in the database, and no round trip.
        lengths = select(func.length(resources.c.document).label("length"))
        sizes = _ordered(lengths, _index_scan(shape.selection, shape.order.by), shape.order)
        size = select(func.sum(sizes.limit(literal(shape.limit)).subquery("sizes").c.length)).scalar_subquery()
        page = page.where(size <= bindparam("max_bytes", type_=NUMBER))
    documents = page.subquery("documents")
    positions = _last_positions(shape).subquery("positions")
    value, last_id = positions.c
    rows = [
        select(documents.c.document, cast(null(), value.type), cast(null(), last_id.type)),
        select(cast(null(), LargeBinary), value, last_id),
    ]
    if wants_total:
        counted = cast(_count_all().scalar_subquery(), value.type)
        rows.append(select(cast(null(), LargeBinary), counted, cast(null(), last_id.type)))
    # The parts come in this order: connections here have no parallel workers, so PostgreSQL appends them.
    return Statement(union_all(*rows))


def _page(shape: ListShape) -> Select[Any]:
    """The documents of a page."""
    selection, order, limit = shape
    if selection.driving is None:
        scan = _index_scan(selection, order.by)
        return _ordered(select(resources.c.document), scan, order).limit(literal(limit))
    positions = _positions(selection, order, literal(limit)).limit(literal(limit)).subquery("positions")
    return select(_document_at(positions)).select_from(positions)


def _last_positions(shape: ListShape) -> Select[Any]:
    """The positions of the page's last resource and of the next one, from the index alone."""
    selection, order, limit = shape
    positions = _positions(selection, order, literal(limit + 1))
    return positions.limit(literal(2)).offset(literal(limit - 1))


@lru_cache(_MAX_SHAPES)
def position_at_offset(selection: Selection, order: ListOrder) -> Statement:
    """The position after `skipped` index entries."""
    scan = _index_scan(selection, order.by)
    positions = _ordered(select(scan.value, scan.id), scan, order)
    return Statement(positions.limit(literal(1)).offset(bindparam("skipped", type_=NUMBER)))


@lru_cache(_MAX_SHAPES)
def total(selection: Selection) -> Statement:
    if selection == EVERYTHING:
        return Statement(_count_all())
    scan = _index_scan(selection, OrderBy.CREATED)
    return Statement(select(func.count()).select_from(scan.table).where(*scan.where))


def _count_all() -> Select[Any]:
    return select(func.coalesce(func.sum(counts.c.total), 0)).where(counts.c.plural == bindparam("plural"))


@lru_cache(_MAX_SHAPES)
def sampled_count(condition: Condition) -> Statement:
    table = _indexed(condition)
    sample = select(table.c.plural).where(*_matching(table, condition)).limit(SAMPLE_SIZE)
    return Statement(select(func.count()).select_from(sample.subquery()))


def _index_scan(selection: Selection, order_by: OrderBy) -> _IndexScan:
    driving = selection.driving
    if driving is None:
        where: list[ColumnElement[bool]] = [resources.c.plural == bindparam("plural")]
        if selection.has_parent:
            where.append(resources.c.parent == bindparam("parent"))
        where += _lookups(selection, resources)
        return _IndexScan(resources, where, resources.c[order_by.value], resources.c.id)
    table = _indexed(driving)
    where = [*_matching(table, driving), *_lookups(selection, table)]
    if table is resources:
        value, resource_id = _unindexed(resources.c[order_by.value]), _unindexed(resources.c.id)
        return _IndexScan(resources, where, value, resource_id)
    if order_by is OrderBy.CREATED:
        return _IndexScan(table, where, table.c.created_time, table.c.resource_id)
    if order_by is OrderBy.ID:
        return _IndexScan(table, where, table.c.resource_id, table.c.resource_id)
    both = table.join(resources, resources.c.id == table.c.resource_id)
    return _IndexScan(both, where, resources.c[order_by.value], resources.c.id)


def _unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column as an expression, for which no index is used.

    SQLite prefers an index in the order of the list, even if it has to read all of it to find one id.
    """
    return func.coalesce(column, column)


def _positions(selection: Selection, order: ListOrder, count: ColumnElement[int]) -> Select[Any]:
    """The positions of the selected resources in order, at least the first `count`."""
    driving = selection.driving
    size = Filter(is_any=False, operands=selection.terms).size
    is_mergeable = driving is not None and _indexed(driving) is not resources and order.by is OrderBy.CREATED
    if driving is None or driving.values < 2 or not is_mergeable or driving.values * size > _MAX_MERGED_CONDITIONS:
        scan = _index_scan(selection, order.by)
        return _ordered(select(scan.value.label("value"), scan.id.label("id")), scan, order)
    # The index is ordered within each value but not across values: scan each value, then merge.
    table = _indexed(driving)
    scans = []
    for index in range(driving.values):
        where = [
            table.c.plural == bindparam("plural"),
            table.c.key == bindparam(f"key_{driving.number}"),
            table.c.value == bindparam(f"value_{driving.number}_{index}"),
            *_lookups(selection, table),
        ]
        scan = _IndexScan(table, where, table.c.created_time, table.c.resource_id)
        one = _ordered(select(scan.value.label("value"), scan.id.label("id")), scan, order)
        scans.append(select(one.limit(count).subquery()))
    merged = union_all(*scans).subquery("merged")
    columns = (merged.c.value, merged.c.id)
    return select(*columns).order_by(*(each.desc() if order.is_descending else each for each in columns))


def _ordered(wanted: Select[Any], scan: _IndexScan, order: ListOrder) -> Select[Any]:
    is_single = order.by is OrderBy.ID
    wanted = wanted.select_from(scan.table).where(*scan.where)
    if order.has_position:
        here: Any = scan.id if is_single else tuple_(scan.value, scan.id)
        position: Any = bindparam("after_id")
        if not is_single:
            position = tuple_(bindparam("after", type_=scan.value.type), bindparam("after_id", type_=scan.id.type))
        wanted = wanted.where(here < position if order.is_descending else here > position)
    columns = [scan.id] if is_single else [scan.value, scan.id]
    return wanted.order_by(*(column.desc() if order.is_descending else column for column in columns))


def _indexed(condition: Condition) -> Table:
    """The table whose index finds the resources that satisfy a condition."""
    match condition.kind:
        case FieldKind.LABEL:
            return labels
        case FieldKind.ATTRIBUTE:
            return attributes
        case FieldKind.NAME | FieldKind.ID:
            return resources
        case _:
            assert_never(condition.kind)


def _matching(table: Table, condition: Condition) -> list[ColumnElement[bool]]:
    """Select the rows of a plural in the table of a condition that satisfy it."""
    if table is resources:
        plural = resources.c.plural if condition.kind is FieldKind.NAME else _unindexed(resources.c.plural)
        return [plural == bindparam("plural"), _is_satisfied(resources.c[condition.kind.value], condition)]
    return [
        table.c.plural == bindparam("plural"),
        table.c.key == bindparam(f"key_{condition.number}"),
        _is_satisfied(table.c[_compared(condition)], condition),
    ]


def _lookups(selection: Selection, scanned: Table) -> list[ColumnElement[bool]]:
    """The terms other than the driving one, tested for one resource of the scanned table."""
    return [_test(each, scanned) for each in selection.others]


def _test(term: Term, scanned: Table) -> ColumnElement[bool]:
    if isinstance(term, Filter):
        tests = [_test(each, scanned) for each in term.operands]
        return or_(*tests) if term.is_any else and_(*tests)
    resource_id = scanned.c.id if scanned is resources else scanned.c.resource_id
    return _is_satisfied(_found(term, scanned, resource_id), term)


def _found(condition: Condition, scanned: Table, resource_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Look up one value of one resource.

    Not by a join or by EXISTS, which PostgreSQL plans as a join: with thirty it would spend seconds on planning,
    and with two it may read a whole table for one page.
    """
    if condition.kind is FieldKind.ID:
        return resource_id
    if condition.kind is FieldKind.NAME:
        if scanned is resources:
            return resources.c.name
        named = resources.alias(f"named_{condition.number}")
        return select(named.c.name).where(named.c.id == resource_id).scalar_subquery()
    other = _indexed(condition).alias(f"found_{condition.number}")
    return (
        select(other.c[_compared(condition)])
        .where(other.c.resource_id == resource_id, other.c.key == bindparam(f"key_{condition.number}"))
        .scalar_subquery()
    )


def _compared(condition: Condition) -> str:
    return "number" if condition.operator in NUMERIC else "value"


def _is_satisfied(found: ColumnElement[Any], condition: Condition) -> ColumnElement[bool]:
    """Test a condition on what was found: a value, the number of a label, or null if there is none."""
    values = [
        bindparam(f"value_{condition.number}_{index}", type_=found.type) for index in range(condition.values)
    ]
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
