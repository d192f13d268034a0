"""Probes and metrics over real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from sentinel.runtime.listening import Address, ListenError, parse_address
from sentinel.runtime.log import get_logger
from sentinel.runtime.probes.health import Health
from sentinel.runtime.probes.listener import Listener, listeners
from sentinel.runtime.probes.metrics import Metrics
from sentinel.runtime.probes.pages import PageResponse, metrics_pages, probe_pages
from sentinel.version import __version__

LOOPBACK = Address("127.0.0.1", 0)
LOG = get_logger("test")
TIMEOUT = 60


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
        yield session


def broken_page(accept: str) -> PageResponse:
    raise LookupError("nothing there")


def listener_of(health: Health, metrics: Metrics) -> Listener:
    pages = probe_pages(health) | metrics_pages(metrics) | {"/broken": broken_page}
    return Listener(LOOPBACK, pages, log=LOG)


@pytest.fixture
async def health() -> Health:
    return Health()


@pytest.fixture
async def metrics() -> Metrics:
    return Metrics(component="pulse")


@pytest.fixture
async def url(health: Health, metrics: Metrics) -> AsyncIterator[str]:
    async with listener_of(health, metrics) as listener:
        yield f"http://{listener.address}"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8080", Address("::1", 8080)),
        ("[::]:8080", Address("::", 8080)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses_are_parsed_as_in_go(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", "::1:8080", ":", "host:", ":65536", ":http", "a b:80", "[::1]", ":-1", "http://x:80"]
)
def test_an_invalid_address_is_rejected_with_a_message(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT") as caught:
        parse_address(text)

    assert f'got "{text}"' in str(caught.value)


@pytest.mark.parametrize("text", [":8080", "127.0.0.1:80", "[::1]:8080"])
def test_an_address_is_rendered_as_it_was_parsed(text: str) -> None:
    assert str(parse_address(text)) == text


async def test_probes_respond_200_without_problems(client: aiohttp.ClientSession, url: str) -> None:
    for path in ("/healthz", "/readyz"):
        async with client.get(url + path) as response:
            assert response.status == 200
            assert response.content_type == "application/json"
            assert await response.json() == {"status": "ok", "checks": {}}


async def test_readiness_responds_503_with_the_reason_and_liveness_200(
    client: aiohttp.ClientSession, url: str, health: Health
) -> None:
    health.add(readiness={"api": lambda: "no poll has succeeded yet"})

    async with client.get(f"{url}/readyz") as ready, client.get(f"{url}/healthz") as alive:
        assert ready.status == 503
        assert (await ready.json())["checks"]["api"]["message"] == "no poll has succeeded yet"
        assert alive.status == 200


async def test_a_head_request_gets_no_body(client: aiohttp.ClientSession, url: str) -> None:
    async with client.head(f"{url}/readyz") as response:
        assert response.status == 200
        assert int(response.headers["Content-Length"]) > 0
        assert await response.read() == b""


async def test_other_paths_and_methods_are_problems(client: aiohttp.ClientSession, url: str) -> None:
    async with client.get(f"{url}/admin") as unknown, client.post(f"{url}/readyz", data=b"x") as forbidden:
        assert unknown.status == 404
        assert unknown.content_type == forbidden.content_type == "application/problem+json"
        assert json.loads(await unknown.text())["code"] == "not_found"
        assert forbidden.status == 405
        assert forbidden.headers["Allow"] == "GET, HEAD"


async def test_a_failing_page_is_a_500_without_its_traceback(client: aiohttp.ClientSession, url: str) -> None:
    async with client.get(f"{url}/broken") as response:
        body = await response.text()

    assert response.status == 500
    assert "LookupError" not in body
    assert response.headers["Server"] == "sentinel"


@pytest.mark.parametrize(
    "request_line", [b"GET /readyz HTTP/1.1", b"GET /nowhere HTTP/1.1", b"\x16\x03\x01 nonsense"]
)
async def test_responses_do_not_expose_versions(url: str, request_line: bytes) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        response = (await reader.read()).lower()
        writer.close()
        await writer.wait_closed()

    assert response.startswith(b"http/1.")
    assert b"server: sentinel\r\n" in response
    assert b"aiohttp" not in response
    assert b"python" not in response


async def test_metrics_are_prometheus_text_with_process_and_build_info(
    client: aiohttp.ClientSession, url: str
) -> None:
    async with client.get(f"{url}/metrics") as response:
        text = await response.text()

    families = {family.name: family for family in read_text(text)}
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert families["process_resident_memory_bytes"].samples[0].value > 0
    build = families["hyperfleet_sentinel_build_info"].samples[0]
    assert build.labels == {"version": __version__, "component": "pulse"}
    assert build.value == 1


async def test_metrics_are_openmetrics_if_accepted(client: aiohttp.ClientSession, url: str) -> None:
    headers = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}

    async with client.get(f"{url}/metrics", headers=headers) as response:
        text = await response.text()

    assert response.content_type == "application/openmetrics-text"
    families = read_openmetrics(text)  # type: ignore[no-untyped-call]  # the client library's parser
    assert any(family.name == "hyperfleet_sentinel_build" for family in families)


def test_registries_with_the_same_family_are_merged() -> None:
    metrics = Metrics(component="up")
    for resource_type in ("clusters", "nodepools"):
        registry = CollectorRegistry()
        Counter("events", "Events.", ["resource_type"], registry=registry).labels(resource_type).inc(3)
        Histogram("seconds", "Seconds.", registry=registry).observe(1)
        metrics.add(registry)

    text = metrics.render()[0].decode()

    assert text.count("# TYPE events_total counter") == 1
    assert 'events_total{resource_type="clusters"} 3.0' in text
    assert 'events_total{resource_type="nodepools"} 3.0' in text
    assert "_created" not in text


def test_a_discarded_registry_is_not_shown() -> None:
    metrics = Metrics(component="up")
    registry = CollectorRegistry()
    Counter("events", "Events.", registry=registry)
    metrics.add(registry)

    metrics.discard(registry)
    metrics.discard(registry)

    assert "events" not in metrics.render()[0].decode()


async def test_one_listener_serves_both_if_the_addresses_are_equal(
    client: aiohttp.ClientSession, health: Health, metrics: Metrics
) -> None:
    (both,) = listeners(metrics_address=LOOPBACK, probes_address=LOOPBACK, metrics=metrics, health=health, log=LOG)

    async with both:
        for path in ("/metrics", "/healthz", "/readyz"):
            async with client.get(f"http://{both.address}{path}") as response:
                assert response.status == 200


async def test_two_addresses_have_two_listeners(
    client: aiohttp.ClientSession, health: Health, metrics: Metrics
) -> None:
    probes, scraped = listeners(
        metrics_address=Address("localhost", 0), probes_address=LOOPBACK, metrics=metrics, health=health, log=LOG
    )

    async with probes, scraped:
        async with client.get(f"http://{probes.address}/metrics") as response:
            assert response.status == 404
        async with client.get(f"http://{scraped.address}/metrics") as response:
            assert response.status == 200


async def test_without_an_address_there_is_no_listener(health: Health, metrics: Metrics) -> None:
    none = listeners(metrics_address=None, probes_address=None, metrics=metrics, health=health, log=LOG)

    assert none == []


async def test_all_interfaces_share_one_port(client: aiohttp.ClientSession, health: Health) -> None:
    async with Listener(Address("", 0), probe_pages(health), log=LOG) as listener:
        async with client.get(f"http://127.0.0.1:{listener.address.port}/healthz") as response:
            assert response.status == 200
        if socket.has_dualstack_ipv6():
            async with client.get(f"http://[::1]:{listener.address.port}/healthz") as response:
                assert response.status == 200


async def test_a_port_in_use_is_a_one_line_error(health: Health) -> None:
    async with Listener(LOOPBACK, probe_pages(health), log=LOG) as first:
        with pytest.raises(ListenError) as caught:
            async with Listener(first.address, probe_pages(health), log=LOG):
                pass

    assert str(caught.value) == f"cannot listen on {first.address}: address already in use"


async def test_an_unknown_host_is_a_one_line_error(health: Health) -> None:
    with pytest.raises(ListenError, match=r"^cannot listen on nowhere\.invalid:80: \S.*"):
        async with Listener(Address("nowhere.invalid", 80), probe_pages(health), log=LOG):
            pass


async def test_open_connections_do_not_block_closing(health: Health) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    connections = []
    async with asyncio.timeout(TIMEOUT):
        async with Listener(LOOPBACK, probe_pages(health), log=LOG) as listener:
            for incomplete in (b"", request[:20]):
                reader, writer = await asyncio.open_connection(listener.address.host, listener.address.port)
                writer.write(request + incomplete)
                await reader.readuntil(b"{}}")
                connections.append((reader, writer))

        for reader, writer in connections:
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
