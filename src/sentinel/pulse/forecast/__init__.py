"""What a configuration will send and cost, at the size of the fleet as it is and at another.

Measured on the live fleet (`calibration`), rehearsed on virtual time through the pulse's own decision and pacing
(`rehearsal`), and projected to any size (`projection`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FleetReader
from sentinel.pulse.forecast.calibration import calibrate
from sentinel.pulse.forecast.projection import (
    LOG_MICROSECONDS,
    PUBLISH_MICROSECONDS,
    PUBLISHER_MEBIBYTES,
    Costs,
    Estimate,
    ForecastProjection,
)
from sentinel.pulse.forecast.simulation import SimulationPlan
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.log import LogLevel


class Present(msgspec.Struct, frozen=True):
    """The fleet as it was found."""

    resources: int
    ready: int
    not_ready: int
    malformed: int


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was not measured."""

    over_seconds: float
    """The time that was rehearsed."""
    answer_after_seconds: float
    """From an event to the report of the adapters, which leaves the resource as ready as it was."""
    cpu_microseconds_per_sent_event: float
    """To publish it on RabbitMQ and, at log level info or below, to log it."""
    publisher_mebibytes: float = PUBLISHER_MEBIBYTES
    """For the RabbitMQ driver and its connection."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, as it is printed for scripts."""

    at: datetime
    resource_type: str
    shard: str
    poll_interval_seconds: float
    fleet: Present
    now: Estimate
    at_size: Estimate | None
    """The same for the size that was asked about."""
    largest_fleet: int | None
    """The most resources for which one process keeps the poll interval; null where nothing limits it."""
    measured: Costs
    assumed: Assumptions


async def forecast(
    settings: PulseSettings,
    *,
    fleet: FleetReader,
    clock: Clock,
    size: int | None,
    answer_after: timedelta,
    lasting: timedelta,
    progress: Callable[[int], None] = lambda fetched: None,
) -> tuple[Forecast, Sequence[str]]:
    """The forecast, and one text for each item that could not be read.

    Raises `FetchError` where the fleet could not be read to its end, and `EmptyFleet`.
    """
    found = await calibrate(settings, fleet=fleet, clock=clock, progress=progress)
    plan = SimulationPlan(
        policy=settings.policy,
        poll_interval=settings.poll_interval,
        republish_interval=settings.republish_interval,
        max_events_per_second=settings.max_events_per_second,
        answer_after=answer_after,
        start=found.at,
        lasting=lasting,
    )
    is_logged = settings.log.level in (LogLevel.DEBUG, LogLevel.INFO)
    assumed = Assumptions(
        over_seconds=lasting.total_seconds(),
        answer_after_seconds=answer_after.total_seconds(),
        cpu_microseconds_per_sent_event=PUBLISH_MICROSECONDS + (LOG_MICROSECONDS if is_logged else 0.0),
    )
    projection = ForecastProjection(
        profile=found.profile,
        costs=found.costs,
        plan=plan,
        page_size=settings.hyperfleet_api.page_size,
        microseconds_per_sent_event=assumed.cpu_microseconds_per_sent_event,
    )
    resources, ready = len(found.profile), found.profile.ready
    answer = Forecast(
        at=found.at,
        resource_type=settings.resource_type,
        shard=settings.shard,
        poll_interval_seconds=settings.poll_interval.total_seconds(),
        fleet=Present(resources, ready, resources - ready, len(found.malformed)),
        now=projection.at(resources),
        at_size=None if size is None else projection.at(size),
        largest_fleet=projection.largest_fleet(),
        measured=found.costs,
        assumed=assumed,
    )
    return answer, found.malformed
