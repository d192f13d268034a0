"""What a configuration will publish and cost, for the fleet as it is and for another size.

`calibration` measures the live fleet, `simulation` runs the pulse's decisions and pacing on virtual time, and
`estimate` combines both for a fleet of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from sentinel.core.pulse.observation import MalformedItem
from sentinel.ports.clock import Clock
from sentinel.ports.fleet import FleetReader
from sentinel.pulse.definition import PulseDefinition
from sentinel.pulse.forecast import estimate
from sentinel.pulse.forecast.calibration import calibrate
from sentinel.pulse.forecast.estimate import Costs, Estimate, Estimator
from sentinel.pulse.forecast.simulation import SimulationPlan


class MeasuredFleet(msgspec.Struct, frozen=True):
    """The fleet that was measured.

    `resources` counts only what could be read.
    """

    resources: int
    ready: int
    not_ready: int
    malformed: int


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs that were not measured."""

    over_seconds: float
    """The simulated time."""
    answer_after_seconds: float
    """From an event to the adapters' report. The report leaves the readiness of the resource as it was."""
    cpu_microseconds_per_sent_event: float
    """To publish an event on RabbitMQ and, at log level info or below, to log it."""
    publisher_mebibytes: float = estimate.PUBLISHER_MEBIBYTES
    """Memory of the RabbitMQ driver and its connection."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `sentinel forecast` for scripts."""

    at: datetime
    resource_type: str
    shard: str
    poll_interval_seconds: float
    fleet: MeasuredFleet
    now: Estimate
    at_size: Estimate | None
    """The estimate for the requested size."""
    largest_fleet: int | None
    """The largest fleet for which one process keeps the poll interval; null if nothing measured limits it."""
    measured: Costs
    assumed: Assumptions


async def forecast(
    definition: PulseDefinition,
    *,
    fleet: FleetReader,
    clock: Clock,
    size: int | None,
    answer_after: timedelta,
    duration: timedelta,
    logs_events: bool,
    progress: Callable[[int], None] = lambda fetched: None,
) -> tuple[Forecast, Sequence[MalformedItem]]:
    """Return the forecast, and the items that could not be read. With `logs_events`, each event costs a log line.

    Raises `FetchError` if the fleet cannot be read to its end, and `EmptyFleet`.
    """
    calibration = await calibrate(definition, fleet=fleet, clock=clock, progress=progress)
    plan = SimulationPlan(
        policy=definition.policy,
        poll_interval=definition.poll_interval,
        republish_interval=definition.republish_interval,
        max_events_per_second=definition.max_events_per_second,
        answer_after=answer_after,
        start=calibration.at,
        duration=duration,
    )
    log_microseconds = estimate.LOG_MICROSECONDS if logs_events else 0.0
    assumed = Assumptions(
        over_seconds=duration.total_seconds(),
        answer_after_seconds=answer_after.total_seconds(),
        cpu_microseconds_per_sent_event=estimate.PUBLISH_MICROSECONDS + log_microseconds,
    )
    estimator = Estimator(
        profile=calibration.profile,
        costs=calibration.costs,
        plan=plan,
        page_size=definition.api.page_size,
        microseconds_per_sent_event=assumed.cpu_microseconds_per_sent_event,
    )
    resources, ready = len(calibration.profile), calibration.profile.ready
    result = Forecast(
        at=calibration.at,
        resource_type=definition.resource_type,
        shard=definition.shard,
        poll_interval_seconds=definition.poll_interval.total_seconds(),
        fleet=MeasuredFleet(resources, ready, resources - ready, len(calibration.malformed)),
        now=estimator.at(resources),
        at_size=None if size is None else estimator.at(size),
        largest_fleet=estimator.largest_fleet(),
        measured=calibration.costs,
        assumed=assumed,
    )
    return result, calibration.malformed
