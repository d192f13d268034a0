"""`sentinel run` as a process, with a real RabbitMQ and a fake API."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sentinel.core.pulse.listing import PageShape
from tests.runtime.trace_collector import TraceCollector
from tests.support.brokers.rabbitmq import BrokerProxy, Inbox, eventually
from tests.support.fleet.fake_api import (
    FakeResponse,
    FleetRequest,
    FleetServer,
    ResponseFault,
    every,
    make_resource,
)
from tests.support.processes.service import SentinelProcess, run_command

StartSentinel = Callable[..., SentinelProcess]


def settings(server: FleetServer, *, api: Mapping[str, object] | None = None, **more: object) -> dict[str, object]:
    """Return settings with short intervals. `api` changes those of the API, `more` all others."""
    return {
        "resource_type": "clusters",
        "poll_interval": "200ms",
        "max_age_not_ready": "10s",
        "max_age_ready": "30m",
        "hyperfleet_api": {"endpoint": server.url, "timeout": "2s", "page_size": 100, **(api or {})},
        "message_data": {"resource_id": ".id", "resource_type": ".kind", "region": ".metadata.labels.region"},
        **more,
    }


@pytest.fixture
def sentinel(server: FleetServer, broker: dict[str, str], tmp_path: Path) -> StartSentinel:
    """A function that returns a process, which reads from `server` and publishes to `inbox`."""

    def start(*, environ: Mapping[str, str] | None = None, **changes: Any) -> SentinelProcess:
        return SentinelProcess(tmp_path, settings(server, **changes), environ=broker | dict(environ or {}))

    return start


def now() -> datetime:
    return datetime.now(UTC)


def put_due(server: FleetServer, count: int) -> None:
    server.put(*(make_resource(f"cls-{n}", observed_generation=0) for n in range(count)))


def select(label: str, value: str) -> list[dict[str, str]]:
    return [{"label": label, "value": value}]


def subject(message: dict[str, Any]) -> str:
    return str(message["subject"])


# --- the specification's integration scenarios -----------------------------------------------------------------


async def test_scenario_1_a_due_resource_gets_an_event(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("cls-123", observed_generation=0, labels={"region": "us-east"}))

    async with sentinel():
        (event,) = await inbox.events(1)

    assert event["type"] == "com.redhat.hyperfleet.cluster.reconcile"
    assert event["source"] == "hyperfleet-sentinel"
    assert event["specversion"] == "1.0"
    assert event["subject"] == "cls-123"
    assert event["data"] == {"resource_id": "cls-123", "resource_type": "Cluster", "region": "us-east"}
    assert abs(datetime.fromisoformat(event["time"]) - now()) < timedelta(minutes=1)


async def test_scenario_2_a_changed_spec_is_published_whatever_the_max_age(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("stable", last_updated=now()))
    async with sentinel() as service:
        await service.until_event("cycle.done", published=0)

        server.change_spec("stable")
        (event,) = await inbox.events(1)
        line = await service.until_event("event.published")

    assert subject(event) == "stable"
    assert line["reason"] == "generation changed - new spec to reconcile"


async def test_scenario_3_while_the_spec_is_stable_max_age_decides(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(
        make_resource("ready-young", last_updated=now() - timedelta(minutes=5)),
        make_resource("ready-old", last_updated=now() - timedelta(minutes=31)),
        make_resource("not-ready-young", phase="NotReady", last_updated=now()),
        make_resource("not-ready-old", phase="NotReady", last_updated=now() - timedelta(seconds=15)),
    )

    async with sentinel() as service:
        events = await inbox.events(2)
        for _ in range(5):
            await service.until_event("cycle.done", since=len(service.lines))

    assert sorted(map(subject, events)) == ["not-ready-old", "ready-old"]
    assert await inbox.is_empty()


async def test_scenario_4_the_next_poll_reads_what_adapters_reported(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("cls-1", generation=2, observed_generation=1, last_updated=now()))
    async with sentinel() as service:
        (first,) = await inbox.events(1)

        server.report(subject(first), now())
        skipped = await service.until_event("cycle.done", since=len(service.lines), skipped=1, paced=0)
        server.change_spec("cls-1")
        (second,) = await inbox.events(1)

    assert skipped["published"] == 0
    assert second["id"] != first["id"]
    assert subject(second) == "cls-1"


# --- several processes ------------------------------------------------------------------------------------------


async def test_two_processes_with_disjoint_selectors_share_a_fleet(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    for n in range(20):
        region = "us-east" if n % 2 else "us-west"
        server.put(make_resource(f"{region}-{n}", observed_generation=0, labels={"region": region}))
    async with (
        sentinel(resource_selector=select("region", "us-east")) as east,
        sentinel(resource_selector=select("region", "us-west"), poll_interval="300ms") as west,
    ):
        events = await inbox.events(20)
        await east.until_event("cycle.done", since=len(east.lines), published=0)
        await west.until_event("cycle.done", since=len(west.lines), published=0)

        assert await east.metric("events_published_total", shard="region=us-east") == 10
        assert await west.metric("events_published_total", shard="region=us-west") == 10

    assert sorted(map(subject, events)) == sorted(resource["id"] for resource in server.resources)
    assert await inbox.is_empty()


async def test_processes_with_overlapping_selectors_both_publish(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("shared", observed_generation=0, labels={"region": "us-east", "tier": "gold"}))
    server.put(make_resource("east-only", observed_generation=0, labels={"region": "us-east"}))

    async with (
        sentinel(resource_selector=select("region", "us-east")),
        sentinel(resource_selector=select("tier", "gold"), poll_interval="350ms", max_age_not_ready="20s"),
    ):
        events = await inbox.events(3)

    assert sorted(map(subject, events)) == ["east-only", "shared", "shared"]


# --- broker failures --------------------------------------------------------------------------------------------


async def test_an_exchange_of_another_type_is_reported_at_startup(inbox: Inbox, sentinel: StartSentinel) -> None:
    async with sentinel(environ={"BROKER_EXCHANGE_TYPE": "topic"}) as service:
        code = await service.exit_code()

    assert code == 2
    assert inbox.exchange in service.stderr.decode()
    assert "topic" in service.stderr.decode()


async def test_without_a_bound_queue_each_poll_sends_one_probe(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    await inbox.unbind()
    put_due(server, 300)
    async with sentinel() as service:
        for _ in range(3):
            await service.until_event("cycle.done", since=len(service.lines), unroutable=1)
        status, body = await service.readiness()
        probes = await service.metric("unroutable_total")
        cycles = await service.metric("reconcile_duration_seconds_count")
        published = await service.metric("events_published_total")
        await inbox.bind()
        events = await inbox.events(300)
        await service.until_event("cycle.done", since=len(service.lines))
        recovered, _ = await service.readiness()

    assert status == 503
    assert body["checks"]["broker"]["status"] == "error"
    assert probes <= cycles + 1
    assert published == 0
    assert len({subject(event) for event in events}) == 300
    assert recovered == 200


async def test_sigterm_in_mid_publish_confirms_what_is_in_flight_and_exits_0(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    put_due(server, 5000)
    async with sentinel() as service:
        await service.until_event("event.published")
        code = await service.stop()
        logged = {line["resource_id"] for line in service.lines if line.get("event") == "event.published"}
        events = await inbox.events(len(logged))

    assert code == 0
    assert 0 < len(logged) < 5000
    assert logged <= {subject(event) for event in events}
    assert any(line.get("event") == "cycle.broken_off" for line in service.lines)


async def test_a_second_signal_ends_it_at_once(server: FleetServer, inbox: Inbox, sentinel: StartSentinel) -> None:
    """The first signal waits for a confirmation that the proxy holds back."""
    put_due(server, 1)
    async with BrokerProxy(inbox.url) as proxy:
        server.script = lambda request: proxy.hold_responses()
        async with sentinel(poll_interval="15s", environ={"BROKER_URL": proxy.url}) as service:
            await eventually(lambda: proxy.published == 1)
            service.send_signal(signal.SIGTERM)
            await service.until_event("service.stopping")
            service.send_signal(signal.SIGTERM)
            code = await service.exit_code(timeout=15)

    assert code == 143


# --- API failures -----------------------------------------------------------------------------------------------


async def test_an_api_that_asks_to_wait_gets_no_request_before_that_time(
    server: FleetServer, sentinel: StartSentinel
) -> None:
    """The first wait is longer than several polls, so the second request shows that it held."""
    times: list[float] = []

    def busy(request: FleetRequest) -> FakeResponse:
        times.append(asyncio.get_running_loop().time())
        first, later = {"Retry-After": "2"}, {"Retry-After": "60"}
        return FakeResponse(429, headers=first) if request.number == 1 else FakeResponse(503, headers=later)

    server.script = busy
    async with sentinel(poll_interval="100ms", api={"timeout": "500ms"}) as service:
        first = await service.until_event("fetch.failed")
        second = await service.until_event("fetch.failed", since=service.lines.index(first) + 1)
        status, body = await service.readiness()
        alive, _ = await service.liveness()
        code = await service.stop()

    assert len(times) == 2
    assert times[1] - times[0] >= 2
    assert "429 Too Many Requests (asks to wait 2 s)" in first["error"]
    assert "503 Service Unavailable (asks to wait 60 s)" in second["error"]
    message = body["checks"]["hyperfleet_api"]["message"]
    assert (status, alive) == (503, 200)
    resumed = datetime.fromisoformat(message.partition("nothing is requested before ")[2])
    assert timedelta(seconds=30) < resumed - now() <= timedelta(seconds=60)
    assert code == 0


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(FakeResponse(500), id="500"),
        pytest.param(ResponseFault.GARBAGE, id="garbage"),
        pytest.param(ResponseFault.HALF, id="half a page"),
        pytest.param(ResponseFault.EMPTY, id="empty body"),
        pytest.param(ResponseFault.DROP, id="no response"),
    ],
)
async def test_an_api_failure_turns_readiness_off_until_it_recovers(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel, failure: ResponseFault | FakeResponse
) -> None:
    put_due(server, 10)
    server.script = lambda request: failure
    async with sentinel(api={"timeout": "500ms"}) as service:
        await service.until_event("fetch.failed")
        status, body = await service.readiness()
        alive, _ = await service.liveness()
        errors = await service.metric("api_errors_total", operation="fetch_resources")
        server.script = None
        events = await inbox.events(10)
        await service.until_event("cycle.done", since=len(service.lines))
        recovered, _ = await service.readiness()

    assert (status, alive, recovered) == (503, 200, 200)
    assert body["checks"]["hyperfleet_api"]["status"] == "error"
    assert errors >= 1
    assert len({subject(event) for event in events}) == 10


async def test_with_every_seventh_request_failing_a_walk_still_completes(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    faults = (
        FakeResponse(500),
        ResponseFault.GARBAGE,
        ResponseFault.TRUNCATED,
        ResponseFault.HALF,
        ResponseFault.DROP,
        FakeResponse(429),
    )
    server.script = every(7, *faults)
    put_due(server, 500)

    async with sentinel(api={"timeout": "5s", "page_size": 20}) as service:
        line = await service.until_event("cycle.done", timeout=60)
        events = await inbox.events(500)

    assert line["resources"] == 500
    assert len({subject(event) for event in events}) == 500


async def test_an_api_and_a_broker_that_start_later_are_found(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.script = lambda request: ResponseFault.DROP
    put_due(server, 1)
    async with BrokerProxy(inbox.url) as proxy:
        await proxy.cut()
        async with sentinel(api={"timeout": "500ms"}, environ={"BROKER_URL": proxy.url}) as service:
            await service.until_event("fetch.failed")
            status, body = await service.readiness()
            alive, _ = await service.liveness()
            server.script = None
            await service.until_event("event.failed")
            await proxy.accept()
            (event,) = await inbox.events(1)
            await service.until_event("cycle.done", since=len(service.lines))
            recovered, _ = await service.readiness()

    failed = {name for name, check in body["checks"].items() if check["status"] == "error"}
    assert (status, alive, recovered) == (503, 200, 200)
    assert failed == {"hyperfleet_api", "broker"}
    assert subject(event) == "cls-0"


async def test_a_cursor_server_is_followed_by_its_cursor(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.shape = PageShape.CURSOR
    put_due(server, 25)

    async with sentinel(api={"page_size": 10}):
        events = await inbox.events(25)

    assert len({subject(event) for event in events}) == 25
    assert {"after", "fields"}.isdisjoint(server.received[0].query)
    assert "after" in server.received[1].query
    assert "metadata.labels.region" in server.received[1].query["fields"].split(",")


# --- time -------------------------------------------------------------------------------------------------------


async def test_an_adapter_clock_four_minutes_fast_delays_nothing(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("fast", phase="NotReady", last_updated=now() + timedelta(minutes=4)))

    async with sentinel(max_age_not_ready="1s"):
        events = await inbox.events(2)

    assert [subject(event) for event in events] == ["fast", "fast"]
    first, second = (datetime.fromisoformat(event["time"]) for event in events)
    assert second - first >= timedelta(milliseconds=900)


async def test_an_unchanged_status_causes_one_event_per_max_age(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("stuck", phase="NotReady", last_updated=now() - timedelta(hours=1)))

    async with sentinel(poll_interval="100ms", max_age_not_ready="1s") as service:
        events = await inbox.events(4)
        async with asyncio.timeout(60):
            while await service.metric("paced_total") < 15:  # noqa: ASYNC110  # a metric has no event
                await asyncio.sleep(0.05)

    times = [datetime.fromisoformat(event["time"]) for event in events]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(gap >= timedelta(milliseconds=900) for gap in gaps), gaps


# --- configuration and output -----------------------------------------------------------------------------------


async def test_an_invalid_configuration_exits_2_before_connecting(
    server: FleetServer, sentinel: StartSentinel
) -> None:
    async with sentinel(pol_interval="5s") as service:
        code = await service.exit_code()

    assert code == 2
    assert b"pol_interval" in service.stderr
    assert b"poll_interval" in service.stderr
    assert server.received == []


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, "BROKER_TYPE"),
        ({"BROKER_TYPE": "pubsub"}, "BROKER_PROJECT_ID"),
        ({"BROKER_TYPE": "carrier-pigeon"}, "BROKER_TYPE"),
    ],
)
async def test_an_unusable_broker_exits_2_with_its_name(
    server: FleetServer, environ: dict[str, str], variable: str, tmp_path: Path
) -> None:
    async with SentinelProcess(tmp_path, settings(server), environ=environ) as service:
        code = await service.exit_code()

    assert code == 2
    assert variable in service.stderr.decode()
    assert server.received == []


async def test_stdout_gets_each_event_as_one_line(server: FleetServer, tmp_path: Path) -> None:
    put_due(server, 3)
    async with SentinelProcess(tmp_path, settings(server), environ={"BROKER_TYPE": "stdout"}) as service:
        await service.until_event("cycle.done", published=3)
        code = await service.stop(signal.SIGINT)

    assert code == 0
    events = [msgspec.json.decode(line) for line in service.stdout.splitlines()]
    assert sorted(map(subject, events)) == ["cls-0", "cls-1", "cls-2"]


async def test_an_example_runs_end_to_end(server: FleetServer, inbox: Inbox, tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "examples"
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


async def test_binary_mode_puts_the_data_alone_into_the_body(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    server.put(make_resource("cls-1", observed_generation=0))

    async with sentinel(event_mode="binary", message_data={"id": ".id"}):
        (message,) = await inbox.receive(1)

    assert message.body == b'{"id":"cls-1"}'
    assert message.content_type == "application/json"
    assert message.headers["cloudEvents:subject"] == "cls-1"


async def test_only_the_needed_libraries_are_loaded(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel, tmp_path: Path
) -> None:
    """The process itself writes down its modules when it ends."""
    unwanted = ("starlette", "uvicorn", "sqlalchemy", "grpc", "cel_expr_python", "rich", "opentelemetry", "google")
    put_due(server, 1)
    hook = tmp_path / "hook" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(
        "import atexit, pathlib, sys\n"
        f"out = pathlib.Path({str(tmp_path / 'modules')!r})\n"
        "atexit.register(lambda: out.write_text(' '.join({m.partition('.')[0] for m in sys.modules})))\n"
    )

    async with sentinel(environ={"PYTHONPATH": str(hook.parent)}) as service:
        await inbox.events(1)
        code = await service.stop()

    loaded = (tmp_path / "modules").read_text().split()
    assert code == 0
    assert "aio_pika" in loaded
    assert [name for name in unwanted if name in loaded] == []


async def test_a_cycle_is_one_trace_and_its_events_carry_its_traceparent(
    server: FleetServer, inbox: Inbox, sentinel: StartSentinel
) -> None:
    put_due(server, 1)
    async with TraceCollector() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        async with sentinel(environ=environ) as service:
            (event,) = await inbox.events(1)
            assert await service.stop() == 0
        spans = collector.spans

    _, trace_id, span_id, _ = event["traceparent"].split("-")
    (cycle,) = [span for span in spans if span.trace_id.hex() == trace_id]
    assert cycle.name == "sentinel.cycle"
    assert cycle.span_id.hex() == span_id
    attributes = {attribute.key: attribute.value.int_value for attribute in cycle.attributes}
    assert attributes["published"] == 1


async def test_a_secret_is_in_no_log_metric_probe_dump_or_error(
    server: FleetServer, inbox: Inbox, tmp_path: Path
) -> None:
    """Every secret setting has a unique value that must not appear in any output."""
    token_file = tmp_path / "token"
    token_file.write_text("planted-token-file-2c40\n")
    environ = {
        "BROKER_TYPE": "rabbitmq",
        "BROKER_HOST": "127.0.0.1",
        "BROKER_USERNAME": "nobody",
        "BROKER_EXCHANGE": inbox.exchange,
        "HYPERFLEET_API_TOKEN": "planted-api-token-7f3a",
        "BROKER_PASSWORD": "planted-password-91bc",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer planted-otel-header-55de",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
    }
    config = settings(server)
    config["hyperfleet_api"] = {"endpoint": server.url, "token_file": str(token_file)}
    config_file = tmp_path / "sentinel.yaml"
    config_file.write_bytes(msgspec.json.encode(config))

    def echo_token(request: FleetRequest) -> FakeResponse:
        return FakeResponse(403, f"no access with {request.headers.get('Authorization')}".encode())

    server.script = echo_token
    output = ""
    for variables in (
        environ,
        {key: value for key, value in environ.items() if key != "HYPERFLEET_API_TOKEN"},
        {**environ, "BROKER_URL": "amqp://nobody:planted-url-password-aa01@127.0.0.1:5672/"},
    ):
        arguments = ["--log-level=debug"]
        async with SentinelProcess(tmp_path, config_file, environ=variables, arguments=arguments) as service:
            await service.until_event("fetch.failed")
            await service.until_event("broker.disconnected")
            output += str(await service.readiness()) + await service.metrics_text()
            assert await service.stop() == 0
        output += service.stderr.decode() + service.stdout.decode()
        for form in ("table", "json", "yaml"):
            command = ("check", "--show", "--config", config_file, "--output", form)
            checked = await run_command(*command, environ=variables)
            assert checked.code == 0
            output += checked.stdout + checked.stderr

    assert "fetch.failed" in output
    for part in ("api-token-7f3a", "password-91bc", "otel-header-55de", "token-file-2c40", "password-aa01"):
        assert part not in output
