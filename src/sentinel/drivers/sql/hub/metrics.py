"""Samples of metrics on SQL: what heartbeats add, and how old ones are thinned out and deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeAlias

from sentinel.core.hub.metrics_samples import thin_out
from sentinel.drivers.sql.engine.columns import from_micros, to_micros
from sentinel.drivers.sql.engine.statements import Row, Session, SqlValue
from sentinel.drivers.sql.hub import rows, statements
from sentinel.drivers.sql.hub.statements import INTERVALS_AT_ONCE
from sentinel.ports.hub_store import THINNED_INTERVAL, Heartbeats

_Series: TypeAlias = tuple[str, int]
"""An instance and its incarnation."""


def flush(session: Session, heartbeats: Sequence[Heartbeats]) -> None:
    """Write heartbeats in the order of their instances, so that two flushes cannot wait for each other."""
    ordered = sorted(heartbeats, key=lambda beats: beats.instance_id)
    session.run_many(statements.HEAR, [rows.heartbeat_values(beats) for beats in ordered])
    samples = [rows.sample_values(beats, sample) for beats in ordered for sample in beats.samples]
    session.run_many(statements.ADD_SAMPLE, samples)


def read(session: Session, instance_id: str, since: datetime, limit: int) -> Sequence[Row]:
    """Return the samples of the present incarnation."""
    found: list[Row] = []
    incarnations = session.rows(statements.INCARNATION, id=instance_id)
    if not incarnations:
        return found
    numbers = [row[0] for row in session.rows(statements.INTERVALS, first=rows.interval_number(since))]
    for start in range(0, len(numbers), INTERVALS_AT_ONCE):
        batch = numbers[start : start + INTERVALS_AT_ONCE]
        batch += batch[-1:] * (INTERVALS_AT_ONCE - len(batch))
        found += session.rows(
            statements.SAMPLES,
            instance_id=instance_id,
            incarnation=incarnations[0][0],
            since=to_micros(since),
            limit=limit - len(found),
            **{f"interval_{index}": number for index, number in enumerate(batch)},
        )
        if len(found) >= limit:
            break
    return found


def thin(session: Session, before: datetime, limit: int) -> int:
    """Thin out the intervals of the oldest samples. Returns how many samples were not thinned out before."""
    by_interval: defaultdict[int, set[_Series]] = defaultdict(set)
    for number, *series in session.rows(statements.TO_THIN, before=rows.interval_number(before), limit=limit):
        by_interval[number].add((series[0], series[1]))
    return sum(_thin_interval(session, number, series) for number, series in sorted(by_interval.items()))


def expire(session: Session, before: datetime, limit: int) -> int:
    """Delete the oldest samples."""
    return session.run(
        statements.EXPIRE_SAMPLES,
        before=to_micros(before),
        last_interval=rows.interval_number(before),
        limit=limit,
    )


def _thin_interval(session: Session, number: int, wanted: Collection[_Series]) -> int:
    by_series: defaultdict[_Series, list[Row]] = defaultdict(list)
    first, last = min(wanted)[0], max(wanted)[0]
    for row in session.rows(statements.INTERVAL, interval=number, first=first, last=last):
        by_series[row[1], row[2]].append(row)
    count = 0
    dropped: list[dict[str, SqlValue]] = []
    kept: list[dict[str, SqlValue]] = []
    for series in sorted(wanted):
        found = by_series[series]
        to_keep = {each.time for each in thin_out([rows.to_sample(row[4:]) for row in found], THINNED_INTERVAL)}
        for in_interval, instance_id, incarnation, is_thinned, time, *_ in found:
            if in_interval != number:
                continue  # It only shows whether there was a reset.
            count += not is_thinned
            key: dict[str, SqlValue] = {
                "of_interval_number": number,
                "of_instance_id": instance_id,
                "of_incarnation": incarnation,
                "of_time": time,
            }
            if from_micros(time) not in to_keep:
                dropped.append(key)
            elif not is_thinned:
                kept.append(key)
    session.run_many(statements.DELETE_SAMPLE, dropped)
    session.run_many(statements.KEEP_SAMPLE, kept)
    return count
