"""Statements on the hub's tables of deployments."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, bindparam, func, insert, literal_column, or_, select, text, true, update

from sentinel.core.hub.rollout_row import RowState
from sentinel.core.hub.rollout_state import RolloutState
from sentinel.drivers.sql.engine.columns import NUMBER, TEXT
from sentinel.drivers.sql.engine.statements import Statement
from sentinel.drivers.sql.hub.rollout_tables import deployments, events, is_active, is_offered, rows
from sentinel.drivers.sql.hub.statements import is_one_of

_FIXED: Final = ("id", "config_id", "request")
_KEY: Final = ("deployment_id", "position", "instance_id")

_id = bindparam("id", type_=TEXT)
_limit = bindparam("limit", type_=NUMBER)
_after = bindparam("after", type_=NUMBER)

LOCK_TARGETS = Statement(
    text("INSERT INTO hub_deployment_lock (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 1")
)
"""An update that changes nothing holds the row until the transaction ends."""

_head = select(deployments.c.revision, deployments.c.progress, deployments.c.request)
HEAD = Statement(_head.where(deployments.c.id == _id))
LOCK = Statement(_head.where(deployments.c.id == _id).with_for_update())
ADD = Statement(insert(deployments).inline(), *deployments.c.keys())
SAVE = Statement(
    update(deployments)
    .where(deployments.c.id == bindparam("of", type_=TEXT))
    .values(
        {each.name: bindparam(each.name, type_=each.type) for each in deployments.c if each.name not in _FIXED}
    )
)
ACTIVE = Statement(select(deployments.c.id, deployments.c.revision).where(is_active))

_details = select(rows.c.position, rows.c.details, rows.c.revision).order_by(rows.c.position)
CHANGED_ROWS = Statement(_details.where(rows.c.deployment_id == _id, rows.c.revision > _after))
ADD_ROW = Statement(insert(rows).inline(), *rows.c.keys())
SAVE_ROW = Statement(
    update(rows)
    .where(
        rows.c.deployment_id == bindparam("of", type_=TEXT),
        rows.c.position == bindparam("of_position", type_=NUMBER),
    )
    .values({each.name: bindparam(each.name, type_=each.type) for each in rows.c if each.name not in _KEY})
)

ADD_EVENT = Statement(insert(events).inline(), *events.c.keys())
EVENTS = Statement(
    select(events)
    .where(events.c.deployment_id == _id, events.c.number > _after)
    .order_by(events.c.number)
    .limit(_limit)
)

HOLDINGS = Statement(
    select(rows.c.instance_id, rows.c.deployment_id, deployments.c.state)
    .join_from(deployments, rows, rows.c.deployment_id == deployments.c.id)
    .where(
        is_active,
        is_one_of(rows.c.instance_id),
        or_(deployments.c.holds_all == true(), rows.c.is_open == true()),
    )
    .order_by(rows.c.instance_id, rows.c.deployment_id)
)
IS_DEPLOYING = Statement(
    select(deployments.c.id)
    .where(
        is_active,
        or_(
            deployments.c.config_id == bindparam("config_id", type_=TEXT),
            select(rows.c.position)
            .where(
                rows.c.deployment_id == deployments.c.id,
                rows.c.previous_config == bindparam("config_id", type_=TEXT),
            )
            .exists(),
        ),
    )
    .limit(1)
)

_ranked = (
    select(
        deployments.c.id,
        deployments.c.offered,
        deployments.c.progress,
        deployments.c.request,
        func.row_number()
        .over(
            partition_by=deployments.c.selector,
            order_by=(deployments.c.offered.desc(), deployments.c.id.desc()),
        )
        .label("position"),
    )
    .where(is_offered)
    .subquery("ranked")
)
OFFERS = Statement(
    select(_ranked.c.id, _ranked.c.offered, _ranked.c.progress, _ranked.c.request)
    .where(_ranked.c.position == literal_column("1"))
    .order_by(_ranked.c.offered.desc(), _ranked.c.id.desc())
)


def _has_one_of(column: ColumnElement[Any], states: Collection[StrEnum]) -> ColumnElement[bool]:
    """In SQL text, so that each combination is planned by itself. Without states, all."""
    if not states:
        return true()
    return column.in_([literal_column(f"'{state.value}'", TEXT) for state in sorted(states)])


@cache
def page(states: frozenset[RolloutState], *, is_first: bool) -> Statement:
    """Deployments in these states, the greatest ids first."""
    wanted = _head.where(_has_one_of(deployments.c.state, states)).order_by(deployments.c.id.desc()).limit(_limit)
    return Statement(wanted if is_first else wanted.where(deployments.c.id < bindparam("before", type_=TEXT)))


@cache
def count(states: frozenset[RolloutState]) -> Statement:
    return Statement(select(func.count()).select_from(deployments).where(_has_one_of(deployments.c.state, states)))


@cache
def page_of_rows(states: frozenset[RowState]) -> Statement:
    """Targets in these states after a position."""
    return Statement(
        _details.where(
            rows.c.deployment_id == _id, rows.c.position > _after, _has_one_of(rows.c.state, states)
        ).limit(_limit)
    )
