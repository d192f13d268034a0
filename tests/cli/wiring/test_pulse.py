"""Every setting of a pulse and of its broker reaches the part that uses it."""

from __future__ import annotations

import asyncio
import ssl
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import trustme
from aio_pika.abc import AbstractIncomingMessage
from prometheus_client import CollectorRegistry

from sentinel.cli.wiring.broker import build_publisher
from sentinel.cli.wiring.pulse import (
    WatchedFleet,
    build_fleet,
    build_pulse,
    build_pulse_metrics,
    build_watched_fleet,
)
from sentinel.core.events import Event, Mode
from sentinel.core.labels import SelectorParam
from sentinel.core.pulse.listing import PageShape
from sentinel.core.pulse.message import reason_data
from sentinel.core.pulse.observation import PLAIN_FIELDS
from sentinel.core.pulse.pacing import Pacer
from sentinel.drivers.memory_broker import MemoryBroker
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Publisher, PublishOutcome
from sentinel.pulse.definition import PulseApiSettings, PulseDefinition, WatchMode
from sentinel.pulse.settings import LabelMatch, PulseSettings
from sentinel.pulse.telemetry import PulseMetrics, PulseSeries
from sentinel.runtime import process
from sentinel.runtime.lifecycle import runner
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.lifecycle.stopping import Stopping
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.tracing import NO_TRACING
from sentinel.testing import loop
from sentinel.testing.clock import START
from sentinel.testing.fleet import FakeFleet
from sentinel.testing.loop import SimulatedClock, simulated
from tests.support.brokers.rabbitmq import Inbox, PrivateRabbitMQ, make_events, open_inbox, url_of
from tests.support.fleet.fake_api import FakeResponse, FleetServer, make_resource, only

SECOND = timedelta(seconds=1)


def definition(endpoint: str = "http://127.0.0.1:1", /, **changes: object) -> PulseDefinition:
    api = msgspec.structs.replace(
        PulseApiSettings(endpoint=endpoint),
        **{name: changes.pop(name) for name in list(changes) if name in PulseApiSettings.__struct_fields__},
    )
    defaults = PulseSettings(resource_type="clusters", hyperfleet_api=api, log=LogSettings())
    return msgspec.structs.replace(defaults, **changes).definition


async def walk(chosen: PulseDefinition) -> int:
    fleet = build_fleet(chosen)
    try:
        return sum([len(page.resources) async for page in fleet.walk()])
    finally:
        await fleet.close()


def stuck_fleet() -> FakeFleet:
    """One resource whose status is old and never changes."""
    fleet = FakeFleet()
    fleet.put("stuck", observed_generation=1, last_updated_time=START - timedelta(hours=1))
    return fleet


def make_part(
    chosen: PulseDefinition,
    *,
    series: PulseSeries,
    fleet: FakeFleet | None = None,
    publisher: Publisher | None = None,
    pacer: Pacer | None = None,
) -> Part:
    return build_pulse(
        chosen,
        fleet=WatchedFleet(fleet or FakeFleet()),
        publisher=publisher or MemoryBroker().publisher(),
        clock=SimulatedClock(),
        tracer=NO_TRACING,
        pacer=Pacer() if pacer is None else pacer,
        series=series,
    )


@pytest.mark.parametrize(("mode", "loops"), [(WatchMode.AUTO, 2), (WatchMode.OFF, 1)])
async def test_a_stream_is_followed_unless_it_is_off(mode: WatchMode, loops: int) -> None:
    chosen = definition("http://127.0.0.1:9", watch=mode)
    fleet = build_watched_fleet(chosen)

    part = build_pulse(
        chosen,
        fleet=fleet,
        publisher=MemoryBroker().publisher(),
        clock=SimulatedClock(),
        tracer=NO_TRACING,
        pacer=Pacer(),
        series=PulseMetrics(CollectorRegistry()).claim(shard="all", resource_type="clusters"),
    )

    assert len(part.loops) == loops


class TestFleet:
    async def test_the_request_follows_the_settings(self, tmp_path: Path) -> None:
        token_file = tmp_path / "token"
        token_file.write_text("from-file\n")
        async with FleetServer() as server:
            chosen = definition(
                server.url,
                page_size=7,
                gzip=True,
                selector_param=SelectorParam.SEARCH,
                token_file=token_file,
                resource_selector=(LabelMatch("region", "us-east"),),
            )
            await walk(chosen)

        (received,) = server.received
        assert received.query == {"search": "labels.region='us-east'", "page": "1", "size": "7"}
        assert received.headers["Accept-Encoding"] == "gzip"
        assert received.headers["Authorization"] == "Bearer from-file"
        assert received.headers["User-Agent"].startswith("hyperfleet-sentinel/")

    async def test_the_token_wins_over_the_file(self, tmp_path: Path) -> None:
        async with FleetServer() as server:
            await walk(definition(server.url, token=Secret("itself"), token_file=tmp_path / "missing"))

        assert server.received[0].headers["Authorization"] == "Bearer itself"

    async def test_on_token_gets_each_rotated_token(self, tmp_path: Path) -> None:
        token_file = tmp_path / "token"
        tokens: list[str] = []
        async with FleetServer() as server:
            fleet = build_fleet(definition(server.url, token_file=token_file), on_token=tokens.append)
            for token in ("first", "second", "second"):
                token_file.write_text(token)
                async for _ in fleet.walk():
                    pass
            await fleet.close()

        assert tokens == ["first", "second"]

    async def test_a_ca_file_is_trusted(self, authority: trustme.CA, ca_file: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        async with FleetServer(tls=context) as server:
            server.put_many(3)

            assert await walk(definition(server.url, ca_file=ca_file)) == 3

    async def test_a_server_with_cursors_is_asked_for_the_read_fields_only(self) -> None:
        async with FleetServer(shape=PageShape.CURSOR) as server:
            server.put(*(make_resource(f"cls-{n}", last_updated=START) for n in range(2)))
            data = {"id": ".id", "region": ".metadata.labels.region", "deep": "{{.spec.a.b.c.d.e.f.g.h.i}}"}

            assert await walk(definition(server.url, page_size=1, message_data=data)) == 2

        fields = server.received[1].query["fields"].split(",")
        assert fields == [*PLAIN_FIELDS, "metadata.labels.region", "spec.a.b.c.d.e.f.g"]

    async def test_a_template_of_the_whole_resource_disables_fields(self) -> None:
        async with FleetServer(shape=PageShape.CURSOR) as server:
            server.put_many(2)
            await walk(definition(server.url, page_size=1, message_data={"all": "{{.}}"}))

        assert "fields" not in server.received[1].query

    async def test_a_failing_server_is_logged_at_the_first_attempt(self, caplog: pytest.LogCaptureFixture) -> None:
        async with FleetServer(script=only(1, FakeResponse(status=503))) as server:
            await walk(definition(server.url))

        (line,) = [record for record in caplog.records if record.getMessage() == "fetch.retrying"]
        assert line.levelname == "WARNING"


class TestPublisher:
    async def test_events_have_the_routing_key(self, rabbitmq_url: str) -> None:
        async with open_inbox(rabbitmq_url, exchange_type="topic", routing_key="fleet.pulse") as box:
            received = await publish_one(rabbitmq(box, url=rabbitmq_url, routing_key="fleet.pulse"), box)

        assert received.routing_key == "fleet.pulse"

    async def test_host_port_and_tls_replace_the_url(
        self, private_rabbitmq: PrivateRabbitMQ, ca_file: Path
    ) -> None:
        async with open_inbox(private_rabbitmq.url) as box:
            broker = BrokerSettings(
                type=BrokerType.RABBITMQ,
                host="127.0.0.1",
                port=private_rabbitmq.tls_port,
                exchange=box.exchange,
                tls=True,
                ca_file=ca_file,
            )
            received = await publish_one(broker, box)

        assert received.body

    async def test_an_unknown_ca_is_not_trusted(self, private_rabbitmq: PrivateRabbitMQ) -> None:
        broker = BrokerSettings(
            type=BrokerType.RABBITMQ, url=Secret(url_of(private_rabbitmq.tls_port, tls=True)), exchange="any"
        )
        publisher = build_publisher(broker, mode=Mode.STRUCTURED)
        await publisher.open()
        unavailable_reason = publisher.unavailable_reason()
        await publisher.close()

        assert unavailable_reason is not None
        assert "certificate" in unavailable_reason.lower()

    def test_a_missing_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "sentinel.drivers.pubsub.publisher", None)
        broker = BrokerSettings(type=BrokerType.PUBSUB, project_id="p")

        with pytest.raises(Misconfigured, match=r"install fleet-sentinel\[pubsub\]"):
            build_publisher(broker, mode=Mode.STRUCTURED)


def rabbitmq(box: Inbox, *, url: str, routing_key: str) -> BrokerSettings:
    return BrokerSettings(
        type=BrokerType.RABBITMQ,
        url=Secret(url),
        exchange=box.exchange,
        exchange_type="topic",
        routing_key=routing_key,
    )


async def publish_one(broker: BrokerSettings, box: Inbox) -> AbstractIncomingMessage:
    publisher = build_publisher(broker, mode=Mode.STRUCTURED)
    events: list[Event] = make_events(1)
    await publisher.open()
    receipt = await publisher.publish(events, deadline=10 * SECOND)
    await publisher.close()
    assert list(receipt.outcomes) == [PublishOutcome.CONFIRMED], receipt.error
    (message,) = await box.receive(1)
    return message


class TestPulse:
    """The effect of each setting on the number of events in a minute."""

    @pytest.mark.parametrize(
        ("changes", "events"),
        [
            ({}, 7),
            ({"poll_interval": 20 * SECOND}, 4),
            ({"max_age_not_ready": 30 * SECOND}, 3),
            ({"republish_interval": 60 * SECOND}, 2),
            ({"republish_interval": timedelta(0)}, 13),
            ({"max_events_per_second": 0.025}, 2),
        ],
    )
    def test_a_status_that_does_not_change(self, changes: dict[str, object], events: int) -> None:
        fleet = stuck_fleet()

        assert len(run_a_minute(fleet, definition(**changes))) == events

    @pytest.mark.parametrize(("changes", "events"), [({}, 7), ({"generation_check": False}, 0)])
    def test_a_generation_that_no_adapter_observes(self, changes: dict[str, object], events: int) -> None:
        fleet = FakeFleet()
        fleet.put("new", generation=2, observed_generation=1, is_ready=True, last_updated_time=START)

        assert len(run_a_minute(fleet, definition(**changes))) == events

    def test_a_ready_resource_has_its_own_max_age(self) -> None:
        fleet = FakeFleet()
        fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)

        assert len(run_a_minute(fleet, definition(max_age_ready=40 * SECOND))) == 1

    def test_the_data_follows_message_data(self) -> None:
        fleet = FakeFleet()
        fleet.put("one", name="the-first")

        bodies = run_a_minute(fleet, definition(message_data={"who": ".name"}))

        assert msgspec.json.decode(bodies[0])["data"] == {"who": "the-first"}

    def test_data_may_contain_the_reason(self) -> None:
        fleet = FakeFleet()
        fleet.put("changed", generation=2, observed_generation=1, last_updated_time=START)
        fleet.put("old", observed_generation=1, last_updated_time=START - timedelta(hours=1))

        bodies = run_a_minute(fleet, definition(message_data=reason_data("clusters")))

        data = [msgspec.json.decode(body)["data"] for body in bodies]
        assert {each["resourceId"]: each["reason"] for each in data} == {
            "changed": "generation-changed",
            "old": "backoff-expired",
        }


class TestRebuild:
    """A pulse that is stopped and rebuilt for new settings, as in a reload."""

    def test_published_events_stay_paced_by_the_new_interval(self) -> None:
        fleet = stuck_fleet()
        rebuilt = RebuiltPulse(fleet)

        rebuilt.run(definition(), duration=1 * SECOND)
        rebuilt.run(definition(republish_interval=20 * SECOND), duration=19 * SECOND)

        assert rebuilt.value("events_published_total") == 1
        assert rebuilt.value("paced_total") == 4

        rebuilt.run(definition(republish_interval=20 * SECOND), duration=1 * SECOND)

        assert rebuilt.value("events_published_total") == 2

    def test_a_new_pacer_publishes_again(self) -> None:
        fleet = stuck_fleet()
        rebuilt = RebuiltPulse(fleet)

        rebuilt.run(definition(), duration=1 * SECOND)
        rebuilt.pacer = Pacer()
        rebuilt.run(definition(), duration=1 * SECOND)

        assert rebuilt.value("events_published_total") == 2

    def test_the_counters_continue_with_the_same_names(self) -> None:
        fleet = FakeFleet()
        fleet.put("calm", observed_generation=1, is_ready=True, last_updated_time=START)
        rebuilt = RebuiltPulse(fleet)

        rebuilt.run(definition(), duration=1 * SECOND)
        before = rebuilt.names()
        rebuilt.series.reloaded()
        rebuilt.run(definition(max_age_ready=1 * SECOND), duration=1 * SECOND)

        assert rebuilt.value("reconcile_duration_seconds_count") == 2
        assert rebuilt.value("resources_skipped_total", ready_state="ready") == 1
        assert rebuilt.value("events_published_total") == 1
        assert rebuilt.value("config_reloads_total") == 1
        assert rebuilt.names() == before

    def test_series_with_other_labels_are_rejected(self) -> None:
        series = PulseMetrics(CollectorRegistry()).claim(shard="region=us-east", resource_type="clusters")

        with pytest.raises(ValueError, match=r"expected the series of clusters \(all\), got .*region=us-east"):
            make_part(definition(), series=series)

    def test_two_pulses_with_equal_labels_exit_with_2(self) -> None:
        metrics = Metrics(component="test")
        pulses = build_pulse_metrics(metrics)

        def build() -> Part:
            return make_part(definition(), series=pulses.claim(shard="all", resource_type="clusters"))

        service = runner.run(parts=[build, build], log=get_logger("test"), metrics=metrics, signals=())

        assert loop.run(asyncio.wait_for(service, timeout=60)) == process.ExitCode.MISCONFIGURED


class RebuiltPulse:
    """A pulse that is rebuilt with the same pacer and series; time continues between builds."""

    def __init__(self, fleet: FakeFleet) -> None:
        self.pacer = Pacer()
        self._metrics = Metrics(component="test")
        self.series = build_pulse_metrics(self._metrics).claim(shard="all", resource_type="clusters")
        self._fleet = fleet
        self._start = START

    def run(self, chosen: PulseDefinition, *, duration: timedelta) -> None:
        loop.run(self._run(chosen, duration), start=self._start)
        self._start += duration

    def value(self, name: str, **labels: str) -> float | None:
        labels |= {"shard": "all", "resource_type": "clusters"}
        for family in self._metrics.collect():
            for sample in family.samples:
                if sample.name == f"hyperfleet_sentinel_{name}" and sample.labels == labels:
                    return sample.value
        return None

    def names(self) -> list[tuple[str, dict[str, str]]]:
        return [
            (sample.name, sample.labels)
            for family in self._metrics.collect()
            for sample in family.samples
            if sample.name.startswith("hyperfleet_sentinel_")
        ]

    async def _run(self, chosen: PulseDefinition, duration: timedelta) -> None:
        broker, stopping = MemoryBroker(), Stopping()
        broker.subscribe("test")
        publisher = broker.publisher()
        await publisher.open()
        part = make_part(chosen, series=self.series, fleet=self._fleet, publisher=publisher, pacer=self.pacer)
        async with asyncio.TaskGroup() as group:
            group.create_task(part.loops[0](stopping))
            await asyncio.sleep(duration.total_seconds())
            stopping.request()


@simulated
async def run_a_minute(fleet: FakeFleet, chosen: PulseDefinition) -> list[bytes]:
    """Run a pulse for a minute, the last poll included; return the message bodies."""
    broker, stopping = MemoryBroker(), Stopping()
    subscriber, publisher = broker.subscribe("test"), broker.publisher()
    await publisher.open()
    series = PulseMetrics(CollectorRegistry()).claim(shard=chosen.shard, resource_type=chosen.resource_type)
    part = make_part(chosen, series=series, fleet=fleet, publisher=publisher)
    bodies: list[bytes] = []

    async def read() -> None:
        async for delivery in subscriber.deliveries():
            bodies.append(delivery.message.body)
            await delivery.ack()

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        group.create_task(part.loops[0](stopping))
        await asyncio.sleep(60.5)
        stopping.request()
        await asyncio.sleep(0.1)
        reading.cancel()
    return bodies
