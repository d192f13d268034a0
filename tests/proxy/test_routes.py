"""Routes decide what responds: an upstream, files, or the proxy itself."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.proxy.running_proxy import RunningProxy, client, forward_all, running_proxy, upstream
from tests.support.http.scripted_server import Script, ScriptedResponse, ScriptedServer


async def get(proxy: RunningProxy, path: str, **headers: str) -> tuple[int, Any, aiohttp.ClientResponse]:
    async with client() as http, http.get(f"{proxy.url}{path}", headers=headers) as response:
        is_json = "json" in response.headers.get("Content-Type", "")
        return response.status, await (response.json(content_type=None) if is_json else response.text()), response


def responding(text: str) -> Script:
    return lambda request: ScriptedResponse(200, text.encode())


async def test_priority_host_method_header_and_query_choose_the_route() -> None:
    text = """
    routes {
        route "rest" { priority low; builtin-handler "not-found" }
        route "path" { matches { path-prefix "/a" }; upstream "path" }
        route "host" { priority high; matches { path-prefix "/a"; host "*.shop.test" }; upstream "host" }
        route "header" { priority 200; matches { header "X-Beta" "1" }; upstream "header" }
        route "query" { priority 300; matches { query-param "beta" }; upstream "query" }
        route "pattern" { priority 300; matches { path-regex "^/v[0-9]+/" }; upstream "pattern" }
        route "method" { priority 400; matches { method "DELETE" }; upstream "method" }
    }
    """
    names = ("path", "host", "header", "query", "pattern", "method")
    async with AsyncExitStack() as stack:
        for name in names:
            backend = await stack.enter_async_context(ScriptedServer(responding(name)))
            text += upstream(name, backend.url)
        async with running_proxy(text) as proxy, client() as http:
            found = [
                (await get(proxy, "/a"))[1],
                (await get(proxy, "/a", Host="x.shop.test:80"))[1],
                (await get(proxy, "/b", **{"X-Beta": "1"}))[1],
                (await get(proxy, "/b?beta"))[1],
                (await get(proxy, "/v12/b"))[1],
                await (await http.delete(f"{proxy.url}/v12/b")).text(),
                (await get(proxy, "/b"))[0],
            ]

    assert found == [*names, 404]


async def test_without_a_route_the_listeners_default_route_responds_or_404() -> None:
    listeners = 'listeners { listener "web" { address "127.0.0.1:0"; default-route "home" } }\n'
    text = 'routes { route "home" { matches { path "/home" }; builtin-handler "health" } }'
    async with running_proxy(text, listeners=listeners) as proxy:
        with_default, _, _ = await get(proxy, "/nowhere")
    async with running_proxy(text) as proxy:
        without, body, _ = await get(proxy, "/nowhere")
        counted = proxy.metric("zentinel_requests_total", route="none", status="404")

    assert (with_default, without, body["detail"], counted) == (200, 404, "no route matches", 1)


async def test_a_route_without_a_destination_is_503() -> None:
    async with running_proxy('routes { route "r" { matches { path-prefix "/" } } }') as proxy:
        status, body, _ = await get(proxy, "/")

    assert (status, body["detail"]) == (503, 'route "r" has no upstream')


@pytest.mark.parametrize(
    ("handler", "status", "expected"),
    [
        ("health", 200, {"status": "healthy"}),
        ("status", 200, {"status": "ok", "uptime": "0s"}),
        ("upstreams", 200, {"total_upstreams": 0, "upstreams": []}),
        ("not-found", 404, {"error": "Not Found", "status": 404, "request_id": "me"}),
        ("cache-stats", 501, {"code": "not_implemented"}),
    ],
)
async def test_builtin_handlers_respond_as_those_of_the_real_proxy(
    handler: str, status: int, expected: dict[str, object]
) -> None:
    text = f'routes {{ route "r" {{ matches {{ path "/x" }}; builtin-handler "{handler}" }} }}'
    async with running_proxy(text) as proxy:
        found, body, _ = await get(proxy, "/x", **{"X-Request-Id": "me"})

    assert found == status
    assert expected.items() <= body.items()


async def test_the_configuration_is_shown_without_values_of_headers() -> None:
    policy = 'policies { request-headers { set { Authorization "secret" } } }'
    text = f'routes {{ route "r" {{ matches {{ path "/config" }}; builtin-handler "config"; {policy} }} }}'
    async with running_proxy(text) as proxy:
        _, body, response = await get(proxy, "/config")

    assert body["config"]["routes"][0]["request_headers"]["set"] == [["Authorization", "***"]]
    assert response.headers["Cache-Control"] == "no-cache, no-store, must-revalidate"


async def test_metrics_are_on_a_route_and_count_it() -> None:
    text = 'routes { route "m" { matches { path "/metrics" }; builtin-handler "metrics" } }'
    async with running_proxy(text) as proxy:
        await get(proxy, "/metrics")
        _, body, _ = await get(proxy, "/metrics")

    assert 'zentinel_requests_total{method="GET",route="m",status="200"} 1.0' in body
    assert 'zentinel_request_duration_seconds_bucket{le="0.001",method="GET",route="m"}' in body
    assert 'zentinel_request_duration_seconds_bucket{le="10.0",method="GET",route="m"} 1.0' in body
    assert "zentinel_active_requests 1.0" in body
    assert "zentinel_open_connections " in body
    assert "zentinel_up 1.0" in body
    assert "zentinel_build_info{version=" in body


async def test_an_unknown_method_is_forwarded_and_counted_as_other() -> None:
    async with (
        ScriptedServer(lambda request: ScriptedResponse()) as backend,
        running_proxy(forward_all(backend.url)) as proxy,
        client() as http,
    ):
        response = await http.request("PROPFIND", proxy.url)

        assert (response.status, backend.requests[0].method) == (200, "PROPFIND")
        assert proxy.metric("zentinel_requests_total", method="other", status="200") == 1


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with some files, and a secret beside it."""
    root = tmp_path / "www"
    (root / "docs").mkdir(parents=True)
    (root / "index.html").write_text("home")
    (root / "docs" / "index.html").write_text("docs")
    (root / "a b.txt").write_text("0123456789")
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    return root


def serve_files(root: Path, more: str = "") -> str:
    return f'routes {{ route "f" {{ matches {{ path-prefix "/" }}; static-files {{ root "{root}"; {more} }} }} }}'


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/", 200, "home"),
        ("/docs/", 200, "docs"),
        ("/a%20b.txt", 200, "0123456789"),
        ("/missing", 404, None),
        ("/%2e%2e/secret", 404, None),
        ("/link", 404, None),
        ("/" + "x" * 300, 404, None),
    ],
)
async def test_files_are_served_and_nothing_beside_them(
    site: Path, path: str, status: int, text: str | None
) -> None:
    async with running_proxy(serve_files(site)) as proxy:
        found, body, _ = await get(proxy, path)

    assert found == status
    assert text is None or body == text


async def test_what_is_not_found_is_the_fallback_and_cache_control_is_sent(site: Path) -> None:
    text = serve_files(site, 'fallback "docs/index.html"; cache-control "max-age=60"')
    async with running_proxy(text) as proxy:
        status, body, response = await get(proxy, "/app/page")

    assert (status, body, response.headers["Cache-Control"]) == (200, "docs", "max-age=60")


async def test_files_have_ranges_and_only_get_and_head(site: Path) -> None:
    async with running_proxy(serve_files(site)) as proxy, client() as http:
        status, body, _ = await get(proxy, "/a%20b.txt", Range="bytes=2-4")
        refused = await http.post(proxy.url, data=b"x")
        head = await http.head(f"{proxy.url}/a%20b.txt")

    assert (status, body) == (206, "234")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    assert (head.status, head.headers["Content-Length"]) == (200, "10")


REMOVING = 'policies { response-headers { set { X-A "1" }; remove "Server" "Date" "ETag" } }'


async def test_the_policy_for_responses_holds_for_our_own() -> None:
    text = f'routes {{ route "r" {{ matches {{ path "/" }}; builtin-handler "not-found"; {REMOVING} }} }}'
    async with running_proxy(text) as proxy:
        _, _, response = await get(proxy, "/")

    assert response.headers["X-A"] == "1"
    assert response.headers.keys().isdisjoint(("Server", "Date"))


async def test_the_policy_for_responses_holds_for_files(site: Path) -> None:
    text = serve_files(site).replace("static-files", f"{REMOVING}; static-files")
    async with running_proxy(text) as proxy:
        _, body, response = await get(proxy, "/")

    assert (body, response.headers["X-A"], response.headers["Content-Type"]) == ("home", "1", "text/html")
    assert response.headers.keys().isdisjoint(("Server", "Date", "ETag"))


async def test_of_an_error_a_policy_only_removes_headers(site: Path) -> None:
    text = serve_files(site).replace("static-files", f"{REMOVING}; static-files")
    async with running_proxy(text) as proxy:
        status, _, response = await get(proxy, "/missing")

    assert status == 404
    assert set(response.headers) == {"Content-Type", "Content-Length"}


async def test_a_file_is_counted_with_the_status_that_was_sent(site: Path) -> None:
    async with running_proxy(serve_files(site)) as proxy:
        _, _, response = await get(proxy, "/")
        unchanged, _, _ = await get(proxy, "/", **{"If-None-Match": response.headers["ETag"]})
        await get(proxy, "/", Range="bytes=1-2")
        counted = [proxy.metric("zentinel_requests_total", status=status) for status in ("200", "206", "304")]

    assert unchanged == 304
    assert counted == [1, 1, 1]


async def test_a_client_that_goes_away_during_a_file_is_no_error(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (site / "large").write_bytes(bytes(2**26))  # more than the buffers of two sockets
    async with running_proxy(serve_files(site)) as proxy:
        host, _, port = proxy.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(2**16)
        active = proxy.metric("zentinel_active_requests")
        writer.transport.abort()
        async with asyncio.timeout(20):
            while proxy.metric("zentinel_active_requests"):  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0)
        counted = proxy.metric("zentinel_requests_total", status="499")

    assert (active, counted) == (1, 1)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
