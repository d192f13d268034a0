"""Kubernetes Events: what is sent, what is not sent again, and what happens if they are not taken."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectReference
from sentinel.ports.kube import Forbidden, KubeObject, KubeUnavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.kube.events import FLUSH_TIMEOUT, MAX_WAITING, EventRecorder, EventType
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.testing import loop
from sentinel.testing.loop import SimulatedClock, simulated
from tests.runtime.kube.fake_kube_api import FakeKubeApi
from tests.support.clocks import AdjustedClock

SECOND = timedelta(seconds=1)
ABOUT = ObjectReference("ex.io/v1", "Widget", "prod", "w", "u-1", "42")
RESET = KubeUnavailable("connection reset by peer")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Recording:
    """A recorder and the events that the API server has."""

    def __init__(self) -> None:
        self.api = FakeKubeApi()
        self.clock = AdjustedClock()
        self.stopping = Stopping()
        numbers = itertools.count(1)
        self.recorder = EventRecorder(
            api=self.api,
            component="sentinel-operator",
            instance="pod-1",
            clock=self.clock,
            log=get_logger("test"),
            backoff=Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0),
            make_suffix=lambda: f"{next(numbers):04x}",
        )

    def record(self, message: str = "The pulse has started", about: ObjectReference = ABOUT) -> None:
        self.recorder.record(about, EventType.NORMAL, "Started", message)

    @property
    def sent(self) -> list[KubeObject]:
        return list(self.api.objects.values())

    @property
    def messages(self) -> list[Json]:
        return [event["message"] for event in self.sent]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.stopping = Stopping()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run(self.stopping))
            yield
            self.stopping.request()


@pytest.fixture
def recording() -> Recording:
    return Recording()


@simulated
async def test_an_event_is_created_as_kubernetes_expects_it(recording: Recording) -> None:
    async with recording.running():
        recording.record()
        await asyncio.sleep(1)

    assert [call.body for call in recording.api.calls] == [
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "w.0001", "namespace": "prod"},
            "involvedObject": {
                "apiVersion": "ex.io/v1",
                "kind": "Widget",
                "namespace": "prod",
                "name": "w",
                "uid": "u-1",
                "resourceVersion": "42",
            },
            "type": "Normal",
            "reason": "Started",
            "message": "The pulse has started",
            "count": 1,
            "firstTimestamp": "2025-01-01T00:00:00Z",
            "lastTimestamp": "2025-01-01T00:00:00Z",
            "source": {"component": "sentinel-operator"},
            "reportingComponent": "sentinel-operator",
            "reportingInstance": "pod-1",
        }
    ]


@simulated
async def test_events_about_objects_without_a_namespace_go_to_default(recording: Recording) -> None:
    async with recording.running():
        recording.record(about=ObjectReference("v1", "Node", "", "n"))
        await asyncio.sleep(1)

    [event] = recording.sent
    assert objects.namespace(event) == "default"
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}


@simulated
async def test_equal_events_are_sent_once_in_five_minutes(recording: Recording) -> None:
    async with recording.running():
        for _ in range(10):
            recording.record()
            await asyncio.sleep(60)

    assert recording.api.times("create") == pytest.approx([0, 300])


@simulated
async def test_events_that_differ_in_anything_are_all_sent(recording: Recording) -> None:
    async with recording.running():
        recorder = recording.recorder
        recorder.record(ABOUT, EventType.NORMAL, "Started", "one")
        recorder.record(ABOUT, EventType.WARNING, "Started", "one")
        recorder.record(ABOUT, EventType.NORMAL, "Reloaded", "one")
        recorder.record(ABOUT, EventType.NORMAL, "Started", "two")
        recorder.record(ObjectReference("ex.io/v1", "Widget", "prod", "v"), EventType.NORMAL, "Started", "one")
        await asyncio.sleep(1)

    assert len(recording.sent) == 5


@simulated
async def test_a_clock_that_was_set_back_suppresses_nothing(recording: Recording) -> None:
    async with recording.running():
        recording.record()
        recording.clock.offset = -timedelta(hours=1)
        recording.record()
        await asyncio.sleep(1)

    assert len(recording.sent) == 2


@simulated
async def test_the_memory_for_repetitions_is_bounded(recording: Recording) -> None:
    async with recording.running():
        for number in range(1001):
            recording.record(str(number))
            await asyncio.sleep(0.01)
        recording.record("1000")
        recording.record("0")
        await asyncio.sleep(1)

    assert recording.messages.count("1000") == 1
    assert recording.messages.count("0") == 2


@simulated
async def test_secrets_are_masked_before_the_message_is_shortened(recording: Recording) -> None:
    async with recording.running():
        recording.record("cannot connect to amqp://user:hunter2@broker")
        recording.record("x" * 1000 + " amqp://user:hunter2hunter2hunter2@broker")
        await asyncio.sleep(1)

    first, second = recording.messages
    assert first == "cannot connect to amqp://user:***@broker"
    assert "hunter" not in str(second)


@simulated
async def test_a_long_message_is_cut_to_a_kilobyte(recording: Recording) -> None:
    async with recording.running():
        recording.record("ü" * 10_000)
        recording.record("\ud800 lone surrogates cannot be sent")
        await asyncio.sleep(1)

    long, repaired = recording.messages
    assert isinstance(long, str)
    assert len(long.encode()) <= 1024
    assert long.endswith("ü…")
    assert repaired == "? lone surrogates cannot be sent"


async def recorded_name(name: str) -> str:
    recording = Recording()
    async with recording.running():
        recording.record(about=ObjectReference("v1", "Role", "prod", name))
        await asyncio.sleep(1)
    [event] = recording.sent
    return objects.name(event)


@given(st.text(max_size=300) | st.from_regex(r"\A[a-z0-9.:-]{1,260}\Z"))
def test_names_of_events_are_valid_dns_names(name: str) -> None:
    event_name = loop.run(recorded_name(name))

    assert DNS_SUBDOMAIN.fullmatch(event_name)
    assert len(event_name) <= 253


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("w", "w.0001"),
        ("a.b-c", "a.b-c.0001"),
        ("system:node", "system-node.0001"),
        ("::", "0001"),
        ("a" * 253, "a" * 248 + ".0001"),
    ],
)
@simulated
async def test_the_name_of_an_event_starts_with_that_of_its_object(name: str, expected: str) -> None:
    assert (await recorded_name(name)) == expected


@simulated
async def test_recording_does_not_wait_for_the_server(recording: Recording) -> None:
    recording.api.hanging.add("create")

    async with recording.running():
        for number in range(50):
            recording.record(str(number))
        assert asyncio.get_running_loop().time() == 0
        recording.api.hanging.clear()


@simulated
async def test_if_too_many_wait_the_oldest_are_dropped_and_counted(recording: Recording) -> None:
    for number in range(MAX_WAITING + 3):
        recording.record(str(number))
    assert recording.recorder.dropped == 3

    async with recording.running():
        recording.record("0")  # it was not sent, so it is no repetition
        await asyncio.sleep(1)

    assert recording.messages == [str(number) for number in [*range(4, MAX_WAITING + 3), 0]]


@simulated
async def test_an_unavailable_server_is_tried_again_in_order(recording: Recording) -> None:
    recording.api.fail("create", RESET, RESET, RESET)

    async with recording.running():
        recording.record("one")
        recording.record("two")
        await asyncio.sleep(60)

    assert recording.api.times("create") == pytest.approx([0, 1, 3, 7, 7])
    assert recording.messages == ["one", "two"]
    assert recording.recorder.dropped == 0


@simulated
async def test_an_event_whose_response_was_lost_is_created_once(recording: Recording) -> None:
    recording.api.losing.add("create")

    async with recording.running():
        recording.record("one")
        await asyncio.sleep(0.5)
        recording.api.losing.clear()
        recording.record("two")
        await asyncio.sleep(60)

    assert recording.messages == ["one", "two"]
    assert recording.recorder.dropped == 0


@simulated
async def test_an_event_is_dropped_after_some_attempts(recording: Recording) -> None:
    recording.api.fail("create", *[RESET] * 6)

    async with recording.running():
        recording.record("one")
        recording.record("two")
        await asyncio.sleep(120)

    assert recording.messages == ["two"]
    assert recording.recorder.dropped == 1


@pytest.mark.parametrize(
    "error", [Forbidden("events is forbidden", status=403), ValueError("a bug"), asyncio.CancelledError()]
)
@simulated
async def test_an_event_that_is_rejected_is_dropped_at_once(
    recording: Recording, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    recording.api.fail("create", error)

    async with recording.running():
        recording.record("one")
        recording.record("two")
        await asyncio.sleep(0.1)
        assert recording.messages == ["two"]
        recording.record("one")
        await asyncio.sleep(0.1)

    assert recording.messages == ["two", "one"]
    assert recording.recorder.dropped == 1
    [record] = caplog.records
    assert record.__dict__["fields"] == {
        "kind": "Widget",
        "namespace": "prod",
        "name": "w",
        "reason": "Started",
        "error": error,
    }


@simulated
async def test_waiting_events_are_sent_at_shutdown(recording: Recording) -> None:
    recording.api.delays["create"] = 0.5

    async with recording.running():
        for number in range(3):
            recording.record(str(number))
        await asyncio.sleep(0.1)

    assert recording.messages == ["0", "1", "2"]


@simulated
async def test_events_recorded_while_others_stop_are_sent_when_it_is_closed(recording: Recording) -> None:
    async with recording.running():
        await asyncio.sleep(1)

    recording.record("stopped")
    await recording.recorder.flush()

    assert recording.messages == ["stopped"]


@simulated
async def test_a_hanging_server_delays_shutdown_only_briefly(recording: Recording) -> None:
    recording.api.hanging.add("create")

    async with recording.running():
        recording.record("one")
        recording.record("two")
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() == pytest.approx(1 + FLUSH_TIMEOUT.total_seconds())
    assert recording.recorder.dropped == 2


@simulated
async def test_at_shutdown_an_unavailable_server_is_tried_once(recording: Recording) -> None:
    recording.api.failing["create"] = RESET

    async with recording.running():
        recording.record("one")
        await asyncio.sleep(0.1)

    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
    assert recording.recorder.dropped == 1


@simulated
async def test_a_default_recorder_gives_every_event_another_name() -> None:
    api = FakeKubeApi()
    recorder = EventRecorder(api=api, component="c", instance="i", clock=SimulatedClock(), log=get_logger("test"))
    for number in range(20):
        recorder.record(ABOUT, EventType.NORMAL, "Started", str(number))

    await recorder.flush()

    names = {objects.name(event) for event in api.objects.values()}
    assert len(names) == 20
    assert all(re.fullmatch(r"w\.[0-9a-f]{16}", name) for name in names)
