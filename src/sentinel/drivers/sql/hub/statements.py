"""Statements on the hub's tables, except for the log of events."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from sentinel.core.hub.states import CONNECTED, State
from sentinel.drivers.sql.engine.columns import NUMBER, TEXT
from sentinel.drivers.sql.engine.statements import Statement
from sentinel.drivers.sql.hub.tables import (
    assigned,
    configs,
    instances,
    is_not_thinned,
    is_out_of_sync,
    is_present,
    metrics,
    secret_uses,
    versions,
)

INTERVALS_AT_ONCE: Final = 64
"""How many intervals of samples one statement reads."""

_after: BindParameter[str] = bindparam("after", type_=TEXT)
_before: BindParameter[int] = bindparam("before", type_=NUMBER)
_limit: BindParameter[int] = bindparam("limit")


class _Texts(FunctionElement[str]):
    """The texts of a JSON array, as a subquery. Its argument is the array."""

    type = TEXT
    inherit_cache = True


@compiles(_Texts, "sqlite")
def _texts_on_sqlite(element: _Texts, compiler: Any, **options: Any) -> str:
    return f"(SELECT value FROM json_each({compiler.process(element.clauses, **options)}))"  # noqa: S608 - a parameter


@compiles(_Texts, "postgresql")
def _texts_on_postgresql(element: _Texts, compiler: Any, **options: Any) -> str:
    array = compiler.process(element.clauses, **options)
    # Without a collation of its own, its texts would not be compared with the index.
    return f'(SELECT jsonb_array_elements_text(CAST({array} AS jsonb)) COLLATE "C")'


def is_one_of(column: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a column is in the JSON array `ids`."""
    return column.bool_op("IN")(_Texts(bindparam("ids", type_=TEXT)))


def _all_but_id(table: Table) -> dict[str, BindParameter[Any]]:
    """The columns that an update of a whole row sets, each from the value of the same name."""
    return {column.name: bindparam(column.name, type_=column.type) for column in table.c if column.name != "id"}


# Instances.

_instance_id = instances.c.id == bindparam("id", type_=TEXT)
_in_order = select(instances).order_by(instances.c.id)

INSTANCE = Statement(select(instances).where(_instance_id))
LOCK_INSTANCE = Statement(select(instances).where(_instance_id).with_for_update())
ADD_INSTANCE = Statement(insert(instances).inline(), *instances.c.keys())
SAVE_INSTANCE = Statement(
    update(instances).where(instances.c.id == bindparam("of", type_=TEXT)).values(_all_but_id(instances))
)
INSTANCES_BY_ID = Statement(select(instances).where(is_one_of(instances.c.id)))


def _has_one_of(states: Collection[State]) -> ColumnElement[bool]:
    """In SQL text, so that each combination is planned by itself."""
    return instances.c.state.in_([literal_column(f"'{state.value}'", TEXT) for state in sorted(states)])


SILENT = Statement(
    select(instances)
    .where(_has_one_of(CONNECTED), instances.c.last_seen < _before)
    .order_by(instances.c.last_seen, instances.c.id)
    .limit(_limit)
)
LEAVING = Statement(
    select(instances.c.id)
    .where(
        _has_one_of([State.OFFLINE, State.DRAINING]),
        or_(
            and_(
                instances.c.state == State.OFFLINE.value,
                instances.c.since < bindparam("offline_before", type_=NUMBER),
            ),
            and_(
                instances.c.state == State.DRAINING.value,
                instances.c.drain_deadline < bindparam("drain_before", type_=NUMBER),
            ),
        ),
    )
    .order_by(instances.c.state, instances.c.id)
    .limit(_limit)
)
LOCK_REMOVED = Statement(
    select(instances.c.id)
    .where(_has_one_of([State.REMOVED]), instances.c.since < _before)
    .order_by(instances.c.id)
    .limit(_limit)
    .with_for_update()
)
"""Locked, so that none of them begins another incarnation before it is deleted."""
DELETE_REMOVED = (
    Statement(delete(instances).where(is_one_of(instances.c.id))),
    Statement(delete(assigned).where(is_one_of(assigned.c.instance_id))),
)
COUNT_BY_STATE = Statement(select(instances.c.state, func.count()).group_by(instances.c.state))
OUT_OF_SYNC = Statement(_in_order.where(is_out_of_sync).limit(_limit))


def _has_state(states: Collection[State]) -> ColumnElement[bool]:
    return _has_one_of(states) if states else is_present


@cache
def page(states: frozenset[State]) -> Statement:
    """Instances in these states after an id; without states, those that are not removed."""
    return Statement(_in_order.where(_has_state(states), instances.c.id > _after).limit(_limit))


@cache
def count(states: frozenset[State]) -> Statement:
    return Statement(select(func.count()).select_from(instances).where(_has_state(states)))


@cache
def labels(states: frozenset[State]) -> Statement:
    """The id and labels of all instances in these states."""
    return Statement(select(instances.c.id, instances.c.labels).where(_has_state(states)).order_by(instances.c.id))


# Heartbeats and metrics.

_last_in_sync: BindParameter[int] = bindparam("last_in_sync", type_=NUMBER)
HEAR = Statement(
    update(instances)
    .where(
        instances.c.id == bindparam("of", type_=TEXT),
        instances.c.incarnation == bindparam("of_incarnation", type_=NUMBER),
        instances.c.session == bindparam("of_session", type_=NUMBER),
        instances.c.last_seen <= bindparam("last_seen", type_=NUMBER),
    )
    .values(
        last_seen=bindparam("last_seen", type_=NUMBER),
        reported_hash=bindparam("reported_hash", type_=instances.c.reported_hash.type),
        report=bindparam("report", type_=instances.c.report.type),
        last_in_sync=case(
            (instances.c.last_in_sync > _last_in_sync, instances.c.last_in_sync),
            else_=func.coalesce(_last_in_sync, instances.c.last_in_sync),
        ),
    )
)
"""Nothing of an earlier session, and nothing older than what is stored."""

_MEASURED = (
    "time",
    "requests_total",
    "requests_failed",
    "latency_p50_ms",
    "latency_p99_ms",
    "bytes_sent",
    "bytes_received",
)
_WRITTEN = ("interval_number", "instance_id", "incarnation", *_MEASURED)
ADD_SAMPLE = Statement(
    text(
        f"INSERT INTO hub_metrics ({', '.join(_WRITTEN)}, is_thinned) "  # noqa: S608 - names of columns
        f"SELECT {', '.join(f':{name}' for name in _WRITTEN)}, false FROM hub_instances "
        "WHERE id = :instance_id AND incarnation = :incarnation ON CONFLICT DO NOTHING"
    ).bindparams(*(bindparam(name, type_=metrics.c[name].type) for name in _WRITTEN))
)
"""Nothing of an earlier incarnation, and the first sample of each time."""

INTERVALS = Statement(
    text(
        """
        WITH RECURSIVE intervals (number) AS (
            SELECT min(interval_number) FROM hub_metrics WHERE interval_number >= :first
            UNION ALL
            SELECT (SELECT min(interval_number) FROM hub_metrics WHERE interval_number > number)
            FROM intervals WHERE number IS NOT NULL
        )
        SELECT number FROM intervals WHERE number IS NOT NULL ORDER BY number
        """
    )
)
"""The intervals with any samples, with one look at the index for each."""

SAMPLES = Statement(
    select(*(metrics.c[name] for name in _MEASURED))
    .where(
        # Not a join with the intervals: where PostgreSQL expects few samples, it would read them all.
        metrics.c.interval_number.in_(
            [bindparam(f"interval_{index}", type_=NUMBER) for index in range(INTERVALS_AT_ONCE)]
        ),
        metrics.c.instance_id == bindparam("instance_id", type_=TEXT),
        metrics.c.incarnation == bindparam("incarnation", type_=NUMBER),
        metrics.c.time >= bindparam("since", type_=NUMBER),
    )
    .order_by(metrics.c.time)
    .limit(_limit)
)
INCARNATION = Statement(select(instances.c.incarnation).where(_instance_id))

_key = tuple(metrics.primary_key)
TO_THIN = Statement(
    select(metrics.c.interval_number, metrics.c.instance_id, metrics.c.incarnation)
    .where(is_not_thinned, metrics.c.interval_number < _before)
    .order_by(*_key)
    .limit(_limit)
)
INTERVAL = Statement(
    select(
        metrics.c.interval_number,
        metrics.c.instance_id,
        metrics.c.incarnation,
        metrics.c.is_thinned,
        *(metrics.c[name] for name in _MEASURED),
    )
    .where(
        metrics.c.interval_number.in_(
            [bindparam("interval", type_=NUMBER) - 1, bindparam("interval", type_=NUMBER)]
        ),
        metrics.c.instance_id >= bindparam("first", type_=TEXT),
        metrics.c.instance_id <= bindparam("last", type_=TEXT),
    )
    .order_by(*_key)
)
"""The samples of an interval, and of the one before."""

_is_sample = [column == bindparam(f"of_{column.name}", type_=column.type) for column in _key]
DELETE_SAMPLE = Statement(delete(metrics).where(*_is_sample))
KEEP_SAMPLE = Statement(update(metrics).where(*_is_sample).values(is_thinned=true()))

_expired = (
    select(*_key)
    .where(metrics.c.interval_number <= bindparam("last_interval", type_=NUMBER), metrics.c.time < _before)
    .order_by(*_key)
    .limit(_limit)
)
EXPIRE_SAMPLES = Statement(delete(metrics).where(tuple_(*_key).in_(_expired)))


# Configurations and their versions.

_config_id = configs.c.id == bindparam("id", type_=TEXT)

CONFIG = Statement(select(configs).where(_config_id))
LOCK_CONFIG = Statement(select(configs).where(_config_id).with_for_update())
KEEP_CONFIG = Statement(select(configs.c.id).where(_config_id).with_for_update(read=True, key_share=True))
CONFIGS = Statement(select(configs).where(configs.c.id > _after).order_by(configs.c.id).limit(_limit))
COUNT_CONFIGS = Statement(select(func.count()).select_from(configs))
ADD_CONFIG = Statement(insert(configs).inline(), *configs.c.keys())
SAVE_CONFIG = Statement(
    update(configs).where(configs.c.id == bindparam("of", type_=TEXT)).values(_all_but_id(configs))
)

_of_config = bindparam("config_id", type_=TEXT)
REMOVE_CONFIG = (
    Statement(delete(configs).where(configs.c.id == _of_config)),
    Statement(delete(versions).where(versions.c.config_id == _of_config)),
    Statement(delete(assigned).where(assigned.c.config_id == _of_config)),
    Statement(delete(secret_uses).where(secret_uses.c.config_id == _of_config)),
)

_number = bindparam("number", type_=NUMBER)
VERSION = Statement(select(versions).where(versions.c.config_id == _of_config, versions.c.number == _number))
VERSIONS = Statement(
    select(versions.c.config_id, versions.c.number, versions.c.details)
    .where(versions.c.config_id == _of_config, versions.c.number < _before)
    .order_by(versions.c.number.desc())
    .limit(_limit)
)
ADD_VERSION = Statement(insert(versions).inline(), *versions.c.keys())
ADD_SECRET_USE = Statement(insert(secret_uses).inline(), *secret_uses.c.keys())

NOTE_ASSIGNED = Statement(
    text(
        "INSERT INTO hub_assigned_versions (instance_id, incarnation, config_id, number) "
        "VALUES (:instance_id, :incarnation, :config_id, :number) ON CONFLICT DO NOTHING"
    )
)
WAS_ASSIGNED = Statement(
    select(assigned.c.number).where(
        *(column == bindparam(column.name, type_=column.type) for column in assigned.c)
    )
)
ASSIGNED_COUNTS = Statement(
    select(instances.c.assigned_config, func.count())
    .where(is_one_of(instances.c.assigned_config), is_present)
    .group_by(instances.c.assigned_config)
)
