"""Samples of metrics on SQL: what heartbeats add, and how old ones are thinned out and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sentinel.core.hub import metrics_samples
from sentinel.drivers.sql.engine.columns import to_micros
from sentinel.drivers.sql.engine.statements import Session, SqlValue
from sentinel.drivers.sql.hub import rows, statements
from sentinel.ports.hub_store import Heartbeats

_MICROSECOND = timedelta(microseconds=1)


class _Interval(NamedTuple):
    """An interval of the samples of one incarnation."""

    instance_id: str
    incarnation: int
    number: int


def flush(session: Session, heartbeats: Sequence[Heartbeats]) -> None:
    """Write heartbeats in the order of their instances, so that two flushes cannot wait for each other."""
    ordered = sorted(heartbeats, key=lambda beats: beats.instance_id)
    session.run_many(statements.HEAR, [rows.heartbeat_values(beats) for beats in ordered])
    samples = [rows.sample_values(beats, sample) for beats in ordered for sample in beats.samples]
    session.run_many(statements.ADD_SAMPLE, samples)


def thin(session: Session, before: datetime, width: timedelta, limit: int) -> int:
    """Thin out the intervals of the oldest samples. Returns how many samples were not thinned out before."""
    step = width // _MICROSECOND
    end = to_micros(before) // step * step
    oldest = session.rows(statements.TO_THIN, before=end, limit=limit)
    intervals = sorted({_Interval(row[0], row[1], row[2] // step) for row in oldest})
    thinned = [_thin(session, interval, width) for interval in intervals]
    session.run_many(statements.DELETE_SAMPLE, [sample for each in thinned for sample in each.deleted])
    session.run_many(statements.KEEP_SAMPLE, [sample for each in thinned for sample in each.kept])
    return sum(each.considered for each in thinned)


def expire(session: Session, before: datetime, limit: int) -> int:
    """Delete the oldest samples."""
    return session.run(statements.EXPIRE_SAMPLES, before=to_micros(before), limit=limit)


class _Thinned(NamedTuple):
    """What becomes of the samples of an interval, as parameters of statements."""

    considered: int
    """How many were not thinned out before."""
    deleted: Sequence[Mapping[str, SqlValue]]
    kept: Sequence[Mapping[str, SqlValue]]


def _thin(session: Session, interval: _Interval, width: timedelta) -> _Thinned:
    step = width // _MICROSECOND
    start = interval.number * step
    series: dict[str, SqlValue] = {"instance_id": interval.instance_id, "incarnation": interval.incarnation}
    found = session.rows(statements.INTERVAL, **series, start=start, end=start + step)
    # The first may be the last one before the interval. It shows whether the next was taken after a reset.
    kept = {to_micros(sample.time) for sample in metrics_samples.thin_out([*map(rows.to_sample, found)], width)}
    times = [(row[0], bool(row[-1])) for row in found if row[0] >= start]
    return _Thinned(
        sum(not is_thinned for _, is_thinned in times),
        [{**series, "of_time": time} for time, _ in times if time not in kept],
        [{**series, "of_time": time} for time, is_thinned in times if time in kept and not is_thinned],
    )
