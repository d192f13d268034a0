"""Builders for tests of stored deployments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from hypothesis import strategies as st

from sentinel.core.hub.deployment import (
    Canary,
    OfflinePolicy,
    Request,
    Rolling,
    Strategy,
    Targets,
    TargetVersion,
)
from sentinel.core.hub.rollout_row import Row, RowState, Step
from sentinel.core.hub.rollout_state import RollbackState, Rollout, RolloutState
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.core.labels import parse
from sentinel.ports.rollout_store import DeploymentEvent, DeploymentRecord, RolloutRow
from tests.support.fleet.store_records import MOMENT, SECOND

COUNTED = ("a", "b", "c", "absent", "not\0stored")
"""Ids whose holdings are compared."""


def to(config_id: str = "api", number: int = 2) -> TargetVersion:
    name = VersionName(config_id, number)
    return TargetVersion(name, f"hash of {name}")


def row(
    instance_id: str,
    state: RowState = RowState.WAITING,
    *,
    batch: int = 1,
    is_open: bool = False,
    previous: TargetVersion | None = None,
) -> Row:
    return Row(
        instance_id=instance_id,
        batch=batch,
        incarnation=1,
        presence=State.ONLINE,
        assigned=previous,
        state=state,
        message=f"«{state}»",
        updated=MOMENT + SECOND / 7,
        previous=previous,
        step=Step(version=to(), deadline=MOMENT + 9 * SECOND) if is_open else None,
    )


def rollout(
    deployment_id: str = "d1",
    *rows: Row,
    state: RolloutState = RolloutState.RUNNING,
    rollback: RollbackState = RollbackState.NONE,
    version: TargetVersion | None = None,
    finished: datetime | None = None,
) -> Rollout:
    return Rollout(
        id=deployment_id,
        to=version or to(),
        strategy=Strategy.ROLLING,
        offline=OfflinePolicy.LATER,
        rolling=Rolling(batch_delay=timedelta(microseconds=1)),
        canary=Canary(),
        progress_deadline=timedelta(hours=1),
        deployment_timeout=timedelta(minutes=5),
        batches=tuple((each.instance_id,) for each in rows),
        canary_batches=0,
        rows={each.instance_id: each for each in rows},
        created=MOMENT,
        state=state,
        rollback=rollback,
        reason="because \N{SNOWMAN}",
        finished=finished,
        open_rows=sum(each.is_open for each in rows),
    )


def rows_of(whole: Rollout) -> list[RolloutRow]:
    return [RolloutRow(position, each) for position, each in enumerate(whole.rows.values())]


def deployment(
    whole: Rollout, *, selector: str | None = None, after: DeploymentRecord | None = None
) -> DeploymentRecord:
    """A new deployment, or the next revision of one."""
    targets = Targets(ids=tuple(whole.rows)) if selector is None else Targets(selector=parse(selector))
    request = Request(
        config_id=whole.to.name.config_id, version=whole.to.name.number, targets=targets, strategy=whole.strategy
    )
    head = msgspec.structs.replace(whole, rows={}, batches=())
    record = DeploymentRecord(
        request=request,
        created_by="ops",
        retry_of="d0",
        rollout=head,
        batches=len(whole.batches),
        counts=dict(whole.counts),
    )
    if after is None:
        return record
    head = msgspec.structs.replace(head, to=after.rollout.to)
    return msgspec.structs.replace(record, request=after.request, rollout=head, revision=after.revision + 1)


def deployment_event(deployment_id: str, number: int, time: datetime = MOMENT) -> DeploymentEvent:
    return DeploymentEvent(
        deployment_id=deployment_id, number=number, time=time, type="deployment.state", data=b'{"a":1}'
    )


def _with_rows(
    deployment_id: str, kinds: Sequence[tuple[RowState, bool, str | None]], **fields: object
) -> Rollout:
    rows = [
        row(name, state, is_open=is_open, previous=None if config_id is None else to(config_id, 1))
        for name, (state, is_open, config_id) in zip("abcd", kinds, strict=True)
    ]
    return msgspec.structs.replace(rollout(deployment_id, *rows), **fields)


SOME_DEPLOYMENT = st.builds(
    _with_rows,
    st.sampled_from(("d1", "d2", "d3", "D1")),
    st.lists(
        st.tuples(st.sampled_from(RowState), st.booleans(), st.sampled_from((None, "api", "web"))),
        min_size=4,
        max_size=4,
    ),
    to=st.sampled_from((to("api"), to("Api", 1), to("web"))),
    state=st.sampled_from(RolloutState),
    rollback=st.sampled_from((RollbackState.NONE, RollbackState.NONE, *RollbackState)),
    finished=st.none() | st.integers(0, 3).map(lambda number: MOMENT + number * SECOND),
)
