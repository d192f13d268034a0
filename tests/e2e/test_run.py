"""`sentinel run` against a real RabbitMQ and an API on loopback, as a process, consuming what it publishes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.core.pulse.listing import PageShape
from tests.runtime.trace_collector import TraceCollector
from tests.support.brokers.rabbitmq import Inbox, Proxy, eventually
from tests.support.fleet.fake_api import FakeResponse, Fault, FleetServer, ReceivedRequest, every, make_resource
from tests.support.processes.service import SentinelProcess


def settings(server: FleetServer, **more: object) -> dict[str, object]:
    return {
        "resource_type": "clusters",
        "poll_interval": "200ms",
        "max_age_not_ready": "10s",
        "max_age_ready": "30m",
        "hyperfleet_api": {"endpoint": server.url, "timeout": "2s", "page_size": 100},
        "message_data": {"resource_id": ".id", "resource_type": ".kind", "region": ".metadata.labels.region"},
        **more,
    }


def broker(inbox: Inbox, **more: str) -> dict[str, str]:
    return {"BROKER_TYPE": "rabbitmq", "BROKER_URL": inbox.url, "BROKER_EXCHANGE": inbox.exchange, **more}


def now() -> datetime:
    return datetime.now(UTC)


def subject(message: dict[str, Any]) -> str:
    return str(message["subject"])


# --- the specification's integration scenarios -----------------------------------------------------------------


async def test_scenario_1_a_due_resource_gets_an_event(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("cls-123", observed_generation=0, labels={"region": "us-east"}))

        async with SentinelProcess(tmp_path, settings(server), environ=broker(inbox)):
            (event,) = await inbox.events(1)

    assert event["type"] == "com.redhat.hyperfleet.cluster.reconcile"
    assert event["source"] == "hyperfleet-sentinel"
    assert event["specversion"] == "1.0"
    assert event["subject"] == "cls-123"
    assert event["data"] == {"resource_id": "cls-123", "resource_type": "Cluster", "region": "us-east"}
    assert abs(datetime.fromisoformat(event["time"]) - now()) < timedelta(minutes=1)


async def test_scenario_2_a_changed_spec_is_published_whatever_the_max_age(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("calm", last_updated=now()))
        async with SentinelProcess(tmp_path, settings(server), environ=broker(inbox)) as service:
            await service.until_event("cycle.done", published=0)

            server.change_spec("calm")
            (event,) = await inbox.events(1)
            line = await service.until_event("event.published")

    assert subject(event) == "calm"
    assert line["reason"] == "generation changed - new spec to reconcile"


async def test_scenario_3_while_the_spec_is_stable_max_age_decides(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(
            make_resource("ready-young", last_updated=now() - timedelta(minutes=5)),
            make_resource("ready-old", last_updated=now() - timedelta(minutes=31)),
            make_resource("busy-young", phase="NotReady", last_updated=now()),
            make_resource("busy-old", phase="NotReady", last_updated=now() - timedelta(seconds=15)),
        )
        async with SentinelProcess(tmp_path, settings(server), environ=broker(inbox)) as service:
            events = await inbox.events(2)
            for _ in range(5):
                await service.until_event("cycle.done", since=len(service.lines))

    assert sorted(map(subject, events)) == ["busy-old", "ready-old"]
    assert await inbox.is_empty()


async def test_scenario_4_the_next_poll_reads_what_adapters_reported(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("cls-1", generation=2, observed_generation=1, last_updated=now()))
        async with SentinelProcess(tmp_path, settings(server), environ=broker(inbox)) as service:
            (first,) = await inbox.events(1)

            server.report(subject(first), now())
            quiet = await service.until_event("cycle.done", since=len(service.lines), skipped=1, paced=0)
            server.change_spec("cls-1")
            (second,) = await inbox.events(1)

    assert quiet["published"] == 0
    assert second["id"] != first["id"]
    assert subject(second) == "cls-1"


# --- several processes ------------------------------------------------------------------------------------------


async def test_two_processes_with_disjoint_selectors_share_a_fleet(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        for n in range(20):
            region = "us-east" if n % 2 else "us-west"
            server.put(make_resource(f"{region}-{n}", observed_generation=0, labels={"region": region}))
        east = settings(server, resource_selector=[{"label": "region", "value": "us-east"}])
        west = settings(server, poll_interval="300ms", resource_selector=[{"label": "region", "value": "us-west"}])
        async with (
            SentinelProcess(tmp_path, east, environ=broker(inbox)) as first,
            SentinelProcess(tmp_path, west, environ=broker(inbox)) as second,
        ):
            events = await inbox.events(20)
            await first.until_event("cycle.done", since=len(first.lines), published=0)
            await second.until_event("cycle.done", since=len(second.lines), published=0)

            assert await first.metric("events_published_total", shard="region=us-east") == 10
            assert await second.metric("events_published_total", shard="region=us-west") == 10

    assert sorted(map(subject, events)) == sorted(resource["id"] for resource in server.resources)
    assert await inbox.is_empty()


async def test_processes_with_overlapping_selectors_both_publish(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("shared", observed_generation=0, labels={"region": "us-east", "tier": "gold"}))
        server.put(make_resource("east-only", observed_generation=0, labels={"region": "us-east"}))
        one = settings(server, resource_selector=[{"label": "region", "value": "us-east"}])
        two = settings(
            server,
            poll_interval="350ms",
            max_age_not_ready="20s",
            resource_selector=[{"label": "tier", "value": "gold"}],
        )
        async with (
            SentinelProcess(tmp_path, one, environ=broker(inbox)),
            SentinelProcess(tmp_path, two, environ=broker(inbox)),
        ):
            events = await inbox.events(3)

    assert sorted(map(subject, events)) == ["east-only", "shared", "shared"]


# --- trouble at the broker --------------------------------------------------------------------------------------


async def test_an_exchange_of_another_type_is_reported_at_startup(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        environ = broker(inbox, BROKER_EXCHANGE_TYPE="topic")

        async with SentinelProcess(tmp_path, settings(server), environ=environ) as service:
            code = await service.exit_code()

    assert code == 2
    assert inbox.exchange in service.stderr.decode()
    assert "topic" in service.stderr.decode()


async def test_without_a_bound_queue_each_poll_sends_one_probe(tmp_path: Path, inbox: Inbox) -> None:
    await inbox.unbind()
    async with FleetServer() as server:
        for n in range(300):
            server.put(make_resource(f"cls-{n}", observed_generation=0))
        async with SentinelProcess(tmp_path, settings(server), environ=broker(inbox)) as service:
            for _ in range(3):
                await service.until_event("cycle.done", since=len(service.lines), unroutable=1)
            status, body = await service.readiness()
            probes = await service.metric("unroutable_total")
            cycles = await service.metric("reconcile_duration_seconds_count")
            published = await service.metric("events_published_total")
            await inbox.bind()
            events = await inbox.events(300)
            await service.until_event("cycle.done", since=len(service.lines))
            healed, _ = await service.readiness()

    assert status == 503
    assert body["checks"]["broker"]["status"] == "error"
    assert probes <= cycles + 1
    assert published == 0
    assert len({subject(event) for event in events}) == 300
    assert healed == 200


async def test_sigterm_in_mid_publish_confirms_what_is_in_flight_and_exits_0(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        for n in range(5000):
            server.put(make_resource(f"cls-{n}", observed_generation=0))
        async with SentinelProcess(tmp_path, settings(server), environ=broker(inbox)) as service:
            await service.until_event("event.published")
            code = await service.stop()
            claimed = {line["resource_id"] for line in service.lines if line.get("event") == "event.published"}
            events = await inbox.events(len(claimed))

    assert code == 0
    assert 0 < len(claimed) < 5000
    assert claimed <= {subject(event) for event in events}
    assert any(line.get("event") == "cycle.broken_off" for line in service.lines)


async def test_a_second_signal_ends_it_at_once(tmp_path: Path, inbox: Inbox) -> None:
    """While it waits for the confirmation of what is in flight, which does not come."""
    async with FleetServer() as server, Proxy(inbox.url) as way_to_broker:
        config = settings(server, poll_interval="15s")
        environ = broker(inbox, BROKER_URL=way_to_broker.url)
        server.put(make_resource("cls-1", observed_generation=0))
        server.script = lambda request: way_to_broker.hold_responses()
        async with SentinelProcess(tmp_path, config, environ=environ) as service:
            await eventually(lambda: way_to_broker.published == 1)
            service.send_signal(signal.SIGTERM)
            await service.until_event("service.stopping")
            service.send_signal(signal.SIGTERM)
            code = await service.exit_code(timeout=5)

    assert code == 143


# --- trouble at the API -----------------------------------------------------------------------------------------

TROUBLES: dict[str, Fault | FakeResponse] = {
    "500": FakeResponse(500),
    "garbage": Fault.GARBAGE,
    "half a page": Fault.HALF,
    "nothing": Fault.EMPTY,
    "no answer": Fault.DROP,
}


@pytest.mark.parametrize("trouble", list(TROUBLES))
async def test_an_api_failure_turns_readiness_off_until_it_recovers(
    tmp_path: Path, inbox: Inbox, trouble: str
) -> None:
    is_broken = True

    def script(request: ReceivedRequest) -> Fault | FakeResponse | None:
        return TROUBLES[trouble] if is_broken else None

    async with FleetServer(script=script) as server:
        for n in range(10):
            server.put(make_resource(f"cls-{n}", observed_generation=0))
        config = settings(server)
        config["hyperfleet_api"] = {"endpoint": server.url, "timeout": "500ms"}
        async with SentinelProcess(tmp_path, config, environ=broker(inbox)) as service:
            await service.until_event("fetch.failed")
            status, body = await service.readiness()
            alive, _ = await service.liveness()
            errors = await service.metric("api_errors_total", operation="fetch_resources")
            is_broken = False
            events = await inbox.events(10)
            await service.until_event("cycle.done", since=len(service.lines))
            healed, _ = await service.readiness()

    assert (status, alive, healed) == (503, 200, 200)
    assert body["checks"]["hyperfleet_api"]["status"] == "error"
    assert errors >= 1
    assert len({subject(event) for event in events}) == 10


async def test_with_every_seventh_request_failing_a_walk_still_completes(tmp_path: Path, inbox: Inbox) -> None:
    faults = (FakeResponse(500), Fault.GARBAGE, Fault.TRUNCATED, Fault.HALF, Fault.DROP, FakeResponse(429))
    async with FleetServer(script=every(7, *faults)) as server:
        for n in range(500):
            server.put(make_resource(f"cls-{n}", observed_generation=0))
        config = settings(server)
        config["hyperfleet_api"] = {"endpoint": server.url, "timeout": "5s", "page_size": 20}
        async with SentinelProcess(tmp_path, config, environ=broker(inbox)) as service:
            line = await service.until_event("cycle.done", timeout=60)
            events = await inbox.events(500)

    assert line["resources"] == 500
    assert len({subject(event) for event in events}) == 500


async def test_an_api_and_a_broker_that_start_later_are_found(tmp_path: Path, inbox: Inbox) -> None:
    """Started before either can be reached; the process lives, says so, and recovers by itself."""
    is_up = False

    def script(request: ReceivedRequest) -> Fault | FakeResponse | None:
        return None if is_up else Fault.DROP

    async with FleetServer(script=script) as server, Proxy(inbox.url) as way_to_broker:
        await way_to_broker.cut()
        server.put(make_resource("cls-1", observed_generation=0))
        config = settings(server)
        config["hyperfleet_api"] = {"endpoint": server.url, "timeout": "500ms"}
        environ = broker(inbox, BROKER_URL=way_to_broker.url)
        async with SentinelProcess(tmp_path, config, environ=environ) as service:
            await service.until_event("fetch.failed")
            status, body = await service.readiness()
            alive, _ = await service.liveness()
            is_up = True
            await service.until_event("event.failed")
            await way_to_broker.heal()
            (event,) = await inbox.events(1)
            await service.until_event("cycle.done", since=len(service.lines))
            healed, _ = await service.readiness()

    assert (status, alive, healed) == (503, 200, 200)
    assert {name for name, check in body["checks"].items() if check["status"] == "error"} == {
        "hyperfleet_api",
        "broker",
    }
    assert subject(event) == "cls-1"


async def test_a_cursor_server_is_followed_by_its_cursor(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer(shape=PageShape.CURSOR) as server:
        for n in range(25):
            server.put(make_resource(f"cls-{n}", observed_generation=0))
        config = settings(server)
        config["hyperfleet_api"] = {"endpoint": server.url, "page_size": 10}
        async with SentinelProcess(tmp_path, config, environ=broker(inbox)):
            events = await inbox.events(25)

    assert len({subject(event) for event in events}) == 25
    assert {"after", "fields"}.isdisjoint(server.received[0].query)
    assert "after" in server.received[1].query
    assert "metadata.labels.region" in server.received[1].query["fields"].split(",")


# --- time -------------------------------------------------------------------------------------------------------


async def test_an_adapter_clock_four_minutes_fast_delays_nothing(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("fast", phase="NotReady", last_updated=now() + timedelta(minutes=4)))
        config = settings(server, max_age_not_ready="1s")
        async with SentinelProcess(tmp_path, config, environ=broker(inbox)):
            events = await inbox.events(2)

    assert [subject(event) for event in events] == ["fast", "fast"]
    first, second = (datetime.fromisoformat(event["time"]) for event in events)
    assert second - first >= timedelta(milliseconds=900)


async def test_an_unchanged_status_causes_one_event_per_max_age(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("stuck", phase="NotReady", last_updated=now() - timedelta(hours=1)))
        config = settings(server, poll_interval="100ms", max_age_not_ready="1s")
        async with SentinelProcess(tmp_path, config, environ=broker(inbox)) as service:
            events = await inbox.events(4)
            paced = await service.metric("paced_total")

    times = [datetime.fromisoformat(event["time"]) for event in events]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(gap >= timedelta(milliseconds=900) for gap in gaps), gaps
    assert paced >= 15


# --- how it is run ----------------------------------------------------------------------------------------------


async def test_an_invalid_configuration_exits_2_before_connecting(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        config = settings(server, pol_interval="5s")

        async with SentinelProcess(tmp_path, config, environ=broker(inbox)) as service:
            code = await service.exit_code()

    assert code == 2
    assert b"pol_interval" in service.stderr
    assert b"poll_interval" in service.stderr
    assert server.received == []


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "BROKER_TYPE"),
        ({"BROKER_TYPE": "pubsub"}, "BROKER_PROJECT_ID"),
        ({"BROKER_TYPE": "carrier-pigeon"}, "BROKER_TYPE"),
    ],
)
async def test_an_unusable_broker_exits_2_with_its_name(
    tmp_path: Path, environ: dict[str, str], said: str
) -> None:
    async with FleetServer() as server, SentinelProcess(tmp_path, settings(server), environ=environ) as service:
        code = await service.exit_code()

    assert code == 2
    assert said in service.stderr.decode()
    assert server.received == []


async def test_stdout_gets_each_event_as_one_line(tmp_path: Path) -> None:
    async with FleetServer() as server:
        for n in range(3):
            server.put(make_resource(f"cls-{n}", observed_generation=0))
        async with SentinelProcess(tmp_path, settings(server), environ={"BROKER_TYPE": "stdout"}) as service:
            await service.until_event("cycle.done", published=3)
            code = await service.stop(signal.SIGINT)

    assert code == 0
    events = [msgspec.json.decode(line) for line in service.stdout.splitlines()]
    assert sorted(map(subject, events)) == ["cls-0", "cls-1", "cls-2"]


async def test_an_example_runs_end_to_end(tmp_path: Path, inbox: Inbox) -> None:
    examples = Path(__file__).parents[2] / "examples"
    async with FleetServer() as server:
        server.put(make_resource("east", observed_generation=0, labels={"region": "us-east"}))
        server.put(make_resource("west", observed_generation=0, labels={"region": "us-west"}))
        arguments = [
            f"--set=hyperfleet_api.endpoint={server.url}",
            "--set=poll_interval=200ms",
            f"--broker-config={examples / 'broker-rabbitmq-configmap.yaml'}",
        ]
        environ = {"BROKER_URL": inbox.url, "BROKER_EXCHANGE": inbox.exchange}
        config = examples / "sentinel-us-east-config.yaml"
        async with SentinelProcess(tmp_path, config, environ=environ, arguments=arguments) as service:
            (event,) = await inbox.events(1)
            await service.until_event("cycle.done", since=len(service.lines), published=0)

    assert event["data"] == {"resource_id": "east", "resource_type": "Cluster", "region": "us-east"}
    assert server.received[0].target.startswith(
        "/api/hyperfleet/v1/clusters?labels=region=us-east&page=1&size=100"
    )
    assert await inbox.is_empty()


async def test_binary_mode_puts_the_data_alone_into_the_body(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server:
        server.put(make_resource("cls-1", observed_generation=0))
        config = settings(server, event_mode="binary", message_data={"id": ".id"})
        async with SentinelProcess(tmp_path, config, environ=broker(inbox)):
            (message,) = await inbox.receive(1)

    assert message.body == b'{"id":"cls-1"}'
    assert message.content_type == "application/json"
    assert message.headers["cloudEvents:subject"] == "cls-1"


async def test_only_the_needed_libraries_are_loaded(tmp_path: Path, inbox: Inbox) -> None:
    """Seen from inside the process, whatever else is installed."""
    unwanted = ("starlette", "uvicorn", "sqlalchemy", "grpc", "cel", "celpy", "rich", "opentelemetry", "google")
    async with FleetServer() as server:
        server.put(make_resource("cls-1", observed_generation=0))
        spy = tmp_path / "spy" / "sitecustomize.py"
        spy.parent.mkdir()
        spy.write_text(
            "import atexit, pathlib, sys\n"
            f"out = pathlib.Path({str(tmp_path / 'modules')!r})\n"
            "atexit.register(lambda: out.write_text(' '.join({m.partition('.')[0] for m in sys.modules})))\n"
        )
        environ = broker(inbox, PYTHONPATH=str(spy.parent))
        async with SentinelProcess(tmp_path, settings(server), environ=environ) as service:
            await inbox.events(1)
            code = await service.stop()

    loaded = (tmp_path / "modules").read_text().split()
    assert code == 0
    assert "aio_pika" in loaded
    assert [name for name in unwanted if name in loaded] == []


async def test_a_cycle_is_one_trace_and_its_events_carry_its_traceparent(tmp_path: Path, inbox: Inbox) -> None:
    async with FleetServer() as server, TraceCollector() as collector:
        server.put(make_resource("cls-1", observed_generation=0))
        environ = broker(inbox, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="100")
        async with SentinelProcess(tmp_path, settings(server), environ=environ) as service:
            (event,) = await inbox.events(1)
            assert await service.stop() == 0
        spans = collector.spans

    _, trace_id, span_id, _ = event["traceparent"].split("-")
    (cycle,) = [span for span in spans if span.trace_id.hex() == trace_id]
    assert cycle.name == "sentinel.cycle"
    assert cycle.span_id.hex() == span_id
    attributes = {attribute.key: attribute.value.int_value for attribute in cycle.attributes}
    assert attributes["published"] == 1


async def test_a_secret_is_in_no_log_metric_probe_dump_or_error(tmp_path: Path, inbox: Inbox) -> None:
    """A unique string is planted in every secret setting, and then looked for in all that can be read."""
    secrets = {
        "HYPERFLEET_API_TOKEN": "planted-api-token-7f3a",
        "BROKER_PASSWORD": "planted-password-91bc",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer planted-otel-header-55de",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
    }
    token_file = tmp_path / "token"
    token_file.write_text("planted-token-file-2c40\n")

    def echo(request: ReceivedRequest) -> FakeResponse:
        """A server that repeats the token in its error."""
        return FakeResponse(403, f"no access with {request.headers.get('Authorization')}".encode())

    async with FleetServer(script=echo) as server:
        config = settings(server)
        config["hyperfleet_api"] = {"endpoint": server.url, "token_file": str(token_file)}
        environ = {
            "BROKER_TYPE": "rabbitmq",
            "BROKER_HOST": "127.0.0.1",
            "BROKER_USERNAME": "nobody",
            "BROKER_EXCHANGE": inbox.exchange,
            **secrets,
        }
        seen = b""
        for variables in (
            environ,
            {key: value for key, value in environ.items() if key != "HYPERFLEET_API_TOKEN"},
            {**environ, "BROKER_URL": "amqp://nobody:planted-url-password-aa01@127.0.0.1:5672/"},
        ):
            arguments = ["--log-level=debug"]
            async with SentinelProcess(tmp_path, config, environ=variables, arguments=arguments) as service:
                await service.until_event("fetch.failed")
                await service.until_event("broker.disconnected")
                seen += str(await service.readiness()).encode() + (await service.metrics_text()).encode()
                assert await service.stop() == 0
            seen += service.stderr + service.stdout
            seen += await _run_check(config, tmp_path, variables)

    assert b"fetch.failed" in seen
    for part in (b"api-token-7f3a", b"password-91bc", b"otel-header-55de", b"token-file-2c40", b"password-aa01"):
        assert part not in seen


async def _run_check(config: dict[str, object], directory: Path, environ: dict[str, str]) -> bytes:
    """Everything that `sentinel check --show` says."""
    path = directory / "check.yaml"
    path.write_bytes(msgspec.json.encode(config))
    said = b""
    for output in ("table", "json", "yaml"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sentinel.cli", "check", "--show", "--config", str(path), "--output", output),
            env={"PATH": os.environ["PATH"], **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0
        said += printed
    return said
