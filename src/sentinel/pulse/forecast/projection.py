"""From what was measured on a fleet to what a fleet of any size will send and cost.

Three things grow with a fleet: the pages to fetch, the resources to judge, the events to send. Each has a price,
measured on the fleet as it is, and the rehearsal says how many events there will be. A cycle that takes longer
than the poll interval makes the polls rarer, which makes the events rarer, so the two are settled together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from sentinel.core.pulse.decision import Reason
from sentinel.pulse.forecast.simulation import FleetProfile, SimulationPlan, SimulationResult, simulate

PUBLISH_MICROSECONDS = 40.0
"""CPU for one event on RabbitMQ, until it is confirmed and counted. Nothing is published here, so it cannot be
measured: this is the budget in docs/reference/performance.md."""
LOG_MICROSECONDS = 20.0
"""CPU for the log line of one event, where events are logged."""
PUBLISHER_MEBIBYTES = 8.0
"""What the RabbitMQ driver and its connection take, which a forecast does without."""
ENTRY_BYTES = 150
"""The most that pacing needs to remember one resource."""

_LARGEST = 1_000_000_000
_PASSES = 3
_SETTLED = 1.05
_MEBIBYTE = 2**20


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured. Not `timedelta`: what one resource takes is not much more than its resolution."""

    resources: int
    """In the fleet that was measured."""
    pages: int
    """Fetched for one walk over it."""
    cpu_microseconds_per_page: float
    """Whatever its resources are."""
    cpu_microseconds_per_resource: float
    """To decode and judge it."""
    cpu_microseconds_per_event: float
    """To compose and encode it; sending it comes on top."""
    milliseconds_per_page: float
    """From page to page of a walk: the server's time, the network's and ours."""
    bytes_per_resource: float
    peak_mebibytes: float
    """Of this process, after walking the fleet."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What to expect of one process at one size of the fleet."""

    resources: int
    events_per_minute: float
    """On average over the time that was rehearsed."""
    events_per_minute_by_reason: Mapping[Reason, float]
    busiest_minute: float
    """Events of the minute that has most."""
    events_at_first_poll: float
    """What is due by now."""
    api_requests_per_second: float
    cycle_seconds: float
    """How long an average cycle takes; longer than the poll interval, and polls come late."""
    cpu_millicores: float
    """On average; 1000 is all that one process can use."""
    memory_mebibytes: float
    is_in_time: bool = msgspec.field(name="keeps_poll_interval")


class ForecastProjection:
    """The prices of a fleet, and what follows from them."""

    def __init__(
        self,
        *,
        profile: FleetProfile,
        costs: Costs,
        plan: SimulationPlan,
        page_size: int,
        microseconds_per_sent_event: float,
    ) -> None:
        """The last is what one event takes beyond composing it."""
        self._profile = profile
        self._costs = costs
        self._plan = plan
        self._page_size = page_size
        self._microseconds_per_event = costs.cpu_microseconds_per_event + microseconds_per_sent_event
        self._is_whole = costs.pages == 1 and costs.resources > page_size
        """A server that hands out everything at once, whatever was asked for."""

    def at(self, size: int) -> Estimate:
        """What to expect of a fleet of this size."""
        costs, pages = self._costs, self._pages(size)
        wanted = self._plan.poll_interval.total_seconds()
        fetching = self._fetch_seconds(size)
        period = max(wanted, fetching)
        for _ in range(_PASSES):
            rehearsal = self._rehearse(size, period)
            sending = self._event_seconds(rehearsal.events / rehearsal.polls)
            if fetching + sending <= period * _SETTLED:
                break
            period = fetching + sending
        minutes = self._plan.lasting / timedelta(minutes=1)
        judging = (pages * costs.cpu_microseconds_per_page + size * costs.cpu_microseconds_per_resource) / 1e6
        return Estimate(
            resources=size,
            events_per_minute=rehearsal.events / minutes,
            events_per_minute_by_reason={
                reason: count / minutes for reason, count in rehearsal.events_by_reason.items()
            },
            busiest_minute=rehearsal.busiest_minute,
            events_at_first_poll=rehearsal.at_first_poll,
            api_requests_per_second=pages / period,
            cycle_seconds=fetching + sending,
            cpu_millicores=(judging + sending) / period * 1000,
            memory_mebibytes=self._mebibytes(size, rehearsal.most_remembered),
            is_in_time=fetching + sending <= wanted,
        )

    def largest_fleet(self) -> int | None:
        """The most resources of which an average cycle keeps the poll interval; None where nothing limits it."""
        wanted = self._plan.poll_interval.total_seconds()
        measured = self._costs.resources
        rehearsal = self._rehearse(measured, wanted)
        share = rehearsal.events / rehearsal.polls / measured
        ceiling = self._plan.max_events_per_second

        def is_in_time(size: int) -> bool:
            events = size * share if ceiling is None else min(size * share, ceiling * wanted)
            return self._fetch_seconds(size) + self._event_seconds(events) <= wanted

        if is_in_time(_LARGEST):
            return None
        low, high = 0, _LARGEST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_in_time(middle) else (low, middle)
        return low

    def _rehearse(self, size: int, period: float) -> SimulationResult:
        plan = msgspec.structs.replace(self._plan, poll_interval=timedelta(seconds=period))
        return simulate(self._profile, plan, size=size)

    def _pages(self, size: int) -> int:
        costs = self._costs
        if self._is_whole:
            return 1
        if costs.pages == max(1, -(-costs.resources // self._page_size)):
            return max(1, -(-size // self._page_size))
        # Its pages hold less than was asked for, or what the selector excludes comes along.
        return max(1, -(-size * costs.pages // costs.resources))

    def _fetch_seconds(self, size: int) -> float:
        costs = self._costs
        per_page = costs.milliseconds_per_page / 1e3
        if self._is_whole:
            return per_page * size / costs.resources
        per_resource = costs.cpu_microseconds_per_resource / 1e6
        waiting = max(0.0, per_page - costs.resources / costs.pages * per_resource)
        return self._pages(size) * waiting + size * per_resource

    def _event_seconds(self, events: float) -> float:
        return events * self._microseconds_per_event / 1e6

    def _mebibytes(self, size: int, remembered: float) -> float:
        costs = self._costs
        # Two pages are held at a time; the measured ones may have been less full than these will be.
        fuller = max(0.0, size / self._pages(size) - costs.resources / costs.pages)
        more = 2 * fuller * costs.bytes_per_resource + remembered * ENTRY_BYTES
        return costs.peak_mebibytes + PUBLISHER_MEBIBYTES + more / _MEBIBYTE
