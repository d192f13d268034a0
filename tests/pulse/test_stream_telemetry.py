"""What a stream brings, as metrics and log lines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from sentinel.core.pulse.decision import Reason
from sentinel.core.pulse.observation import MalformedItem
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.ports.fleet_stream import Connected, Disconnected, StreamEnd
from sentinel.pulse.report import StreamReport
from tests.pulse.test_telemetry import TelemetryHarness, make_paced

SECOND = timedelta(seconds=1)
LOST = Disconnected(StreamEnd.UNREACHABLE, "connection refused", SECOND)


@pytest.fixture
def harness() -> Iterator[TelemetryHarness]:
    harness = TelemetryHarness("info")
    yield harness
    harness.logging.restore()


def test_items_and_decisions_are_counted(harness: TelemetryHarness) -> None:
    decided = [make_paced(reason=Reason.GENERATION_CHANGED, verdict=PacingVerdict.PUBLISH)]
    malformed = [MalformedItem("cls-2", "no generation")]

    harness.telemetry.streamed(
        StreamReport(changed=3, removed=2, synced=1, malformed=malformed, decided=decided, deferred=4)
    )

    counts = {
        item: harness.value("stream_items_total", type=item)
        for item in ("changed", "removed", "synced", "malformed")
    }
    assert counts == {"changed": 3, "removed": 2, "synced": 1, "malformed": 1}
    reason = Reason.GENERATION_CHANGED.value
    assert harness.value("decisions_total", decision="publish", reason=reason) == 1
    assert harness.value("deferred_total") == 4
    assert harness.value("malformed_resources_total") == 1
    assert [line["resource_id"] for line in harness.named("resource.malformed")] == ["cls-2"]


def test_the_connection_is_a_gauge_and_a_line(harness: TelemetryHarness) -> None:
    connected = []
    for connection in (Connected(is_resumed=False), LOST, Connected(is_resumed=True)):
        harness.telemetry.streamed(StreamReport(connection=connection))
        connected.append(harness.value("stream_connected"))

    assert connected == [1, 0, 1]
    assert [line["resumed"] for line in harness.named("stream.connected")] == [False, True]
    (lost,) = harness.named("stream.lost")
    assert (lost["level"], lost["reason"], lost["problem"]) == ("warning", "unreachable", "connection refused")


def test_a_long_outage_is_logged_once_and_counted_each_time(harness: TelemetryHarness) -> None:
    for _ in range(5):
        harness.telemetry.streamed(StreamReport(connection=LOST))

    assert len(harness.named("stream.lost")) == 1
    assert harness.value("stream_disconnects_total", reason="unreachable") == 5


def test_a_second_outage_is_logged_again(harness: TelemetryHarness) -> None:
    for connection in (LOST, Connected(is_resumed=True), LOST):
        harness.telemetry.streamed(StreamReport(connection=connection))

    assert len(harness.named("stream.lost")) == 2


def test_a_server_without_streams_is_no_warning(harness: TelemetryHarness) -> None:
    harness.telemetry.streamed(StreamReport(connection=Disconnected(StreamEnd.UNSUPPORTED, "a list", SECOND)))

    (line,) = harness.named("stream.unsupported")
    assert line["level"] == "info"


@pytest.mark.parametrize("reason", list(StreamEnd))
def test_every_reason_is_a_series_from_the_start(harness: TelemetryHarness, reason: StreamEnd) -> None:
    assert harness.value("stream_disconnects_total", reason=reason.value) == 0
