"""Projects what was measured on a fleet to a fleet of any size.

Three things grow with a fleet: pages to fetch, resources to decide on, and events to send. Each has a measured
cost, and the simulation gives the number of events. A cycle longer than the poll interval makes polls rarer, and
rarer polls send fewer events, so the two are computed by iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from sentinel.core.pulse.decision import Reason
from sentinel.pulse.forecast.simulation import FleetProfile, SimulationPlan, SimulationResult, simulate

PUBLISH_MICROSECONDS = 20.0
"""CPU for one event on RabbitMQ until it is confirmed, counted and recorded for pacing.

A forecast publishes nothing, so this is not measured. It is what the budget of the whole process in
docs/reference/performance.md, 35 µs for a confirmed event, leaves beside the resource (6 µs), composing (4 µs) and
the log line."""
LOG_MICROSECONDS = 5.0
"""CPU for the log line of one event, if events are logged."""
PUBLISHER_MEBIBYTES = 8.0
"""Memory of the RabbitMQ driver and its connection, which a forecast does not load."""
ENTRY_BYTES = 150
"""The largest entry of the pacing table."""

_MAX_FLEET = 1_000_000_000
_MAX_ITERATIONS = 3
_TOLERANCE = 1.05
_MEBIBYTE = 2**20


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """The measured costs. Not `timedelta`: its resolution is too coarse for the cost of one resource."""

    resources: int
    """In the measured fleet."""
    pages: int
    """Fetched in one walk."""
    cpu_microseconds_per_page: float
    """The fixed cost of a page, without its resources."""
    cpu_microseconds_per_resource: float
    """To decode a resource and decide on it."""
    cpu_microseconds_per_event: float
    """To compose and encode an event, without sending it."""
    milliseconds_per_page: float
    """Wall time per page of a walk: server, network and this process."""
    bytes_per_resource: float
    peak_mebibytes: float
    """Of this process, after the walks."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What one process will do and use, for one fleet size."""

    resources: int
    events_per_minute: float
    """On average over the simulated time."""
    events_per_minute_by_reason: Mapping[Reason, float]
    busiest_minute: float
    """Events in the busiest minute."""
    events_at_first_poll: float
    """Events that are due already."""
    api_requests_per_second: float
    cycle_seconds: float
    """The average duration of a cycle. Polls are late if it exceeds the poll interval."""
    cpu_millicores: float
    """On average; one process can use at most 1000."""
    memory_mebibytes: float
    keeps_poll_interval: bool


class Estimator(msgspec.Struct, frozen=True, kw_only=True):
    """Computes estimates from a fleet's profile and its measured costs.

    `microseconds_per_sent_event` is the cost of sending one event, without composing it.
    """

    profile: FleetProfile
    costs: Costs
    plan: SimulationPlan
    page_size: int
    microseconds_per_sent_event: float

    @property
    def _is_unpaged(self) -> bool:
        """Whether the server ignores the page size and returns everything at once."""
        return self.costs.pages == 1 and self.costs.resources > self.page_size

    def at(self, size: int) -> Estimate:
        """Return the estimate for a fleet of this size."""
        costs, pages = self.costs, self._pages(size)
        poll_interval = self.plan.poll_interval.total_seconds()
        fetching = self._fetch_seconds(size)
        period = max(poll_interval, fetching)
        for _ in range(_MAX_ITERATIONS):
            simulated = self._simulate(size, period)
            sending = self._event_seconds(simulated.events / simulated.polls)
            if fetching + sending <= period * _TOLERANCE:
                break
            period = fetching + sending
        minutes = self.plan.duration / timedelta(minutes=1)
        deciding = (pages * costs.cpu_microseconds_per_page + size * costs.cpu_microseconds_per_resource) / 1e6
        return Estimate(
            resources=size,
            events_per_minute=simulated.events / minutes,
            events_per_minute_by_reason={
                reason: count / minutes for reason, count in simulated.events_by_reason.items()
            },
            busiest_minute=simulated.busiest_minute,
            events_at_first_poll=simulated.at_first_poll,
            api_requests_per_second=pages / period,
            cycle_seconds=fetching + sending,
            cpu_millicores=(deciding + sending) / period * 1000,
            memory_mebibytes=self._mebibytes(size, simulated.max_remembered),
            keeps_poll_interval=fetching + sending <= poll_interval,
        )

    def largest_fleet(self) -> int | None:
        """The largest fleet for which an average cycle keeps the poll interval; None if nothing limits it."""
        poll_interval = self.plan.poll_interval.total_seconds()
        measured = self.costs.resources
        simulated = self._simulate(measured, poll_interval)
        share = simulated.events / simulated.polls / measured
        limit = self.plan.max_events_per_second

        def keeps_interval(size: int) -> bool:
            events = size * share if limit is None else min(size * share, limit * poll_interval)
            return self._fetch_seconds(size) + self._event_seconds(events) <= poll_interval

        if keeps_interval(_MAX_FLEET):
            return None
        low, high = 0, _MAX_FLEET
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if keeps_interval(middle) else (low, middle)
        return low

    def _simulate(self, size: int, period: float) -> SimulationResult:
        plan = msgspec.structs.replace(self.plan, poll_interval=timedelta(seconds=period))
        return simulate(self.profile, plan, size=size)

    def _pages(self, size: int) -> int:
        costs = self.costs
        if self._is_unpaged:
            return 1
        if costs.pages == max(1, -(-costs.resources // self.page_size)):
            return max(1, -(-size // self.page_size))
        # The server caps its pages below the page size, or ignores the selector.
        return max(1, -(-size * costs.pages // costs.resources))

    def _fetch_seconds(self, size: int) -> float:
        costs = self.costs
        per_page = costs.milliseconds_per_page / 1e3
        if self._is_unpaged:
            return per_page * size / costs.resources
        per_resource = costs.cpu_microseconds_per_resource / 1e6
        waiting = max(0.0, per_page - costs.resources / costs.pages * per_resource)
        return self._pages(size) * waiting + size * per_resource

    def _event_seconds(self, events: float) -> float:
        return events * (self.costs.cpu_microseconds_per_event + self.microseconds_per_sent_event) / 1e6

    def _mebibytes(self, size: int, remembered: float) -> float:
        costs = self.costs
        # Two pages are held at a time, and these may be fuller than the measured ones.
        more_per_page = max(0.0, size / self._pages(size) - costs.resources / costs.pages)
        extra_bytes = 2 * more_per_page * costs.bytes_per_resource + remembered * ENTRY_BYTES
        return costs.peak_mebibytes + PUBLISHER_MEBIBYTES + extra_bytes / _MEBIBYTE
