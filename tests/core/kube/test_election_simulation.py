"""Elections among several processes whose clocks and network are wrong in every allowed way.

Time is true time, in seconds, which no process knows. Each process has a clock with an offset and a rate of its
own, is cut off from the API server for a while, is killed, or shuts down. Requests and responses are delayed and
lost, and a request may arrive long after its sender has given up on it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import timedelta
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.kube import election, lease
from sentinel.testing.clock import START
from tests.support.examples import examples

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0
CALL_TIMEOUT = 5.0
RATES = (0.85, 1.0, 1.2)
"""The ratio of the fastest and the slowest clock is below 1.5."""


class Network(msgspec.Struct, frozen=True):
    """How calls fail."""

    longest_delay: float = 0.05
    """Of a request, and of a response, in seconds."""
    loss: float = 0.0
    """The share of requests and of responses that are lost."""
    late_requests: float = 0.0
    """The share of requests that arrive up to a minute late."""


class World:
    """The API server with one Lease, the network, and true time."""

    def __init__(self, random: Random, network: Network) -> None:
        self.random = random
        self.network = network
        self.now = 0.0
        self.stored: dict[str, Json] | None = None
        self.leaderships: list[Leadership] = []
        self._version = 0
        self._scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._scheduled, (self.now + seconds, next(self._numbers), act))

    def run(self, until: float) -> None:
        while self._scheduled and self._scheduled[0][0] <= until:
            self.now, _, act = heapq.heappop(self._scheduled)
            act()
        self.now = until

    def get(self) -> dict[str, Json] | None:
        return self.stored

    def create(self, body: dict[str, Json]) -> dict[str, Json] | None:
        return None if self.stored is not None else self._store(body)

    def replace(self, body: dict[str, Json]) -> dict[str, Json] | None:
        is_current = self.stored is not None and _version(self.stored) == _version(body)
        return self._store(body) if is_current else None

    def delay(self) -> float:
        return self.random.uniform(0, self.network.longest_delay)

    def is_lost(self) -> bool:
        return self.random.random() < self.network.loss

    def request_delay(self) -> float:
        return self.random.uniform(0, 60) if self.random.random() < self.network.late_requests else self.delay()

    def _store(self, body: dict[str, Json]) -> dict[str, Json]:
        self._version += 1
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        self.stored = {**body, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        return self.stored


def _version(kube_object: dict[str, Json]) -> Json:
    metadata = kube_object["metadata"]
    assert isinstance(metadata, dict)
    return metadata["resourceVersion"]


class Leadership(msgspec.Struct):
    """A time during which one process was the leader."""

    identity: str
    start: float
    end: float


class Process:
    """A candidate with its own clock."""

    def __init__(self, world: World, identity: str, *, rate: float = 1.0) -> None:
        self._world = world
        self._rate = rate
        self._offset = world.random.uniform(0, 1e6)
        self._state = election.Election(identity=identity)
        self._seen: dict[str, Json] = {}
        self._leadership: Leadership | None = None
        self._is_running = True
        self._call = 0
        self.is_cut_off = False
        self._advance(election.Waited())

    @property
    def is_leader(self) -> bool:
        return self._leadership is not None and self._leadership.start <= self._world.now < self._leadership.end

    def kill(self) -> None:
        """End without a word."""
        self._is_running = False
        self._stop_leading()

    def shut_down(self) -> None:
        """Stop leading, then release the Lease."""
        self.kill()
        if election.may_hold(self._state):
            self._send(self._world.get, self._release, timeout=None)

    def _release(self, found: dict[str, Json] | None) -> None:
        if found is not None and lease.read(found).term.holder == self._state.identity:
            body = lease.released(found, time=START + self._now(), annotations={})
            self._send(lambda: self._world.replace(body), lambda _: None, timeout=None)

    def _advance(self, event: election.Event) -> None:
        if not self._is_running:
            return
        now = self._now()
        self._state, command = election.advance(self._state, event, now, random=self._world.random.random())
        self._record()
        self._call += 1
        match command:
            case election.Wait(delay=delay):
                call = self._call
                self._world.after(
                    delay.total_seconds() / self._rate, lambda: self._end_call(call, election.Waited())
                )
            case election.Get():
                self._send(self._world.get, lambda found: self._found(found), timeout=self._timeout())
            case election.Create():
                body = lease.new(
                    name="l",
                    namespace="n",
                    holder=self._state.identity,
                    duration=_seconds(LEASE),
                    time=START + now,
                )
                self._send(lambda: self._world.create(body), self._written(now), timeout=self._timeout())
            case election.Replace():
                body = lease.taken(
                    self._seen,
                    holder=self._state.identity,
                    duration=_seconds(LEASE),
                    time=START + now,
                    annotations={},
                )
                self._send(lambda: self._world.replace(body), self._written(now), timeout=self._timeout())

    def _found(self, found: dict[str, Json] | None) -> None:
        if found is None:
            self._advance(election.Absent())
            return
        self._seen = found
        self._advance(election.Found(lease.read(found)))

    def _written(self, sent: timedelta) -> Callable[[dict[str, Json] | None], None]:
        def written(stored: dict[str, Json] | None) -> None:
            if stored is None:
                self._advance(election.Failed())
                return
            self._seen = stored
            self._advance(election.Written(lease.read(stored), sent))

        return written

    def _send(
        self,
        request: Callable[[], dict[str, Json] | None],
        respond: Callable[[dict[str, Json] | None], None],
        *,
        timeout: float | None,
    ) -> None:
        world, call = self._world, self._call
        if timeout is not None:
            world.after(timeout / self._rate, lambda: self._end_call(call, election.Failed()))

        def receive(response: dict[str, Json] | None) -> None:
            if self._call == call and not self.is_cut_off:
                respond(response)

        def arrive() -> None:
            response = request()
            if not world.is_lost():
                world.after(world.delay(), lambda: receive(response))

        if not self.is_cut_off and not world.is_lost():
            world.after(world.request_delay(), arrive)

    def _end_call(self, call: int, event: election.Event) -> None:
        if self._call == call:
            self._advance(event)

    def _timeout(self) -> float:
        """A call ends when leadership does."""
        time_left = election.time_left(self._state, self._now()).total_seconds()
        return min(CALL_TIMEOUT, time_left or CALL_TIMEOUT)

    def _record(self) -> None:
        time_left = election.time_left(self._state, self._now()).total_seconds() / self._rate
        if not time_left:
            self._stop_leading()
            return
        end = self._world.now + time_left
        if self._leadership is None or self._leadership.end < self._world.now:
            self._leadership = Leadership(self._state.identity, self._world.now, end)
            self._world.leaderships.append(self._leadership)
        self._leadership.end = end

    def _stop_leading(self) -> None:
        if self._leadership is not None:
            self._leadership.end = min(self._leadership.end, self._world.now)
            self._leadership = None

    def _now(self) -> timedelta:
        return _seconds(self._offset + self._world.now * self._rate)


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def overlaps(leaderships: list[Leadership]) -> list[tuple[Leadership, Leadership]]:
    """Pairs of processes that led at the same time, for longer than a clock can resolve."""
    ordered = sorted(leaderships, key=lambda leadership: leadership.start)
    return [
        (one, other)
        for one, other in itertools.combinations(ordered, 2)
        if one.identity != other.identity and min(one.end, other.end) - other.start > 1e-5
    ]


def simulate(seed: int, *, network: Network, minutes: int = 10) -> World:
    """Let processes come and go under all faults."""
    random = Random(seed)  # noqa: S311  # reproducible
    world = World(random, network)
    numbers = itertools.count()
    processes: list[Process] = []

    def start() -> None:
        processes.append(Process(world, f"p{next(numbers)}", rate=random.choice(RATES)))

    def disturb() -> None:
        leaders = [process for process in processes if process.is_leader]
        process = random.choice(leaders or processes) if random.random() < 0.5 else random.choice(processes)
        match random.choice(["cut", "cut", "kill", "shut down"]):
            case "cut":
                process.is_cut_off = True
                world.after(random.uniform(0, 40), lambda: setattr(process, "is_cut_off", False))
            case "kill":
                replace(process, process.kill)
            case _:
                replace(process, process.shut_down)
        world.after(random.uniform(0, 40), disturb)

    def replace(process: Process, end: Callable[[], None]) -> None:
        end()
        processes.remove(process)
        start()

    for _ in range(random.randint(2, 4)):
        start()
    world.after(random.uniform(0, 20), disturb)
    world.run(minutes * 60)
    return world


networks = st.builds(
    Network,
    longest_delay=st.sampled_from([0.05, 1, 2, 4]),
    loss=st.sampled_from([0, 0.02, 0.2]),
    late_requests=st.sampled_from([0, 0.02, 0.2]),
)


@given(st.integers(0, 2**32), networks)
def test_two_processes_never_lead_at_the_same_time(seed: int, network: Network) -> None:
    world = simulate(seed, network=network)

    assert overlaps(world.leaderships) == []


@settings(max_examples=examples(20))
@given(st.integers(0, 2**32))
def test_with_a_good_network_there_is_mostly_a_leader(seed: int) -> None:
    world = simulate(seed, network=Network())

    assert overlaps(world.leaderships) == []
    assert sum(leadership.end - leadership.start for leadership in world.leaderships) > 0.4 * world.now


@pytest.fixture(params=range(30))
def pair(request: pytest.FixtureRequest) -> tuple[World, list[Process]]:
    """Two processes, one of which is the leader."""
    world = World(Random(request.param), Network())  # noqa: S311  # reproducible
    processes = [Process(world, name) for name in "ab"]
    world.run(until=30 + world.random.uniform(0, 5))
    return world, processes


def leader_of(processes: list[Process]) -> Process:
    [leader] = [process for process in processes if process.is_leader]
    return leader


def test_after_a_death_another_leads_within_the_lease_and_a_retry_period(
    pair: tuple[World, list[Process]],
) -> None:
    world, processes = pair
    leader = leader_of(processes)

    leader.kill()
    processes.remove(leader)
    world.run(until=world.now + LEASE + RETRY + 4 * 2 * world.network.longest_delay)

    assert leader_of(processes) is not leader


def test_after_a_shutdown_another_leads_within_a_retry_period(pair: tuple[World, list[Process]]) -> None:
    world, processes = pair
    leader = leader_of(processes)

    leader.shut_down()
    processes.remove(leader)
    world.run(until=world.now + RETRY + 4 * 2 * world.network.longest_delay)

    assert leader_of(processes) is not leader


def test_a_leader_with_a_good_network_leads_for_ever(pair: tuple[World, list[Process]]) -> None:
    world, processes = pair
    leader = leader_of(processes)

    world.run(until=world.now + 300)

    assert leader_of(processes) is leader
    assert len(world.leaderships) == 1
