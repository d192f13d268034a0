"""Targets share the requests, and unhealthy ones get none."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import pytest

from sentinel.core.proxy.model import Endpoint, HealthCheck, HealthCheckType, LoadBalancing, Target, Upstream
from sentinel.proxy.upstreams import UpstreamPool
from sentinel.runtime.log import get_logger
from tests.proxy.running_proxy import RunningProxy, client, running_proxy, upstream
from tests.support.http.scripted_server import ScriptedResponse, ScriptedServer

ROUTES = 'routes { route "all" { matches { path-prefix "/" }; upstream "u" } }\n'


def ok(_: object) -> ScriptedResponse:
    return ScriptedResponse()


async def two_servers(stack: AsyncExitStack) -> tuple[ScriptedServer, ScriptedServer]:
    return await stack.enter_async_context(ScriptedServer(ok)), await stack.enter_async_context(ScriptedServer(ok))


async def send(proxy: RunningProxy, count: int) -> list[int]:
    async with client() as http:
        return [(await http.get(proxy.url)).status for _ in range(count)]


@pytest.mark.parametrize(
    ("more", "expected"), [("", (4, 4)), ("load-balancing maglev", (4, 4)), ("load-balancing weighted", (6, 2))]
)
async def test_targets_share_requests_as_configured(more: str, expected: tuple[int, int]) -> None:
    async with AsyncExitStack() as stack:
        first, second = await two_servers(stack)
        targets = f'target "{first.url[7:]}" weight=3; target "{second.url[7:]}"'
        text = f'{ROUTES} upstreams {{ upstream "u" {{ {targets}; {more} }} }}'
        async with running_proxy(text) as proxy:
            statuses = await send(proxy, 8)

    assert Counter(statuses) == {200: 8}
    assert (len(first.requests), len(second.requests)) == expected


async def test_the_least_busy_target_gets_the_next_request() -> None:
    pool = UpstreamPool(
        Upstream(
            id="u",
            targets=(Target(Endpoint("a", 1)), Target(Endpoint("b", 1))),
            load_balancing=LoadBalancing.LEAST_CONNECTIONS,
        ),
        log=get_logger("proxy"),
    )
    pool.targets[0].active = 5

    assert {pool.choose() for _ in range(4)} == {pool.targets[1]}


def checked_pool(server: ScriptedServer, **check: object) -> tuple[UpstreamPool, HealthCheck]:
    host, _, port = server.url[7:].partition(":")
    kind = check.pop("type", HealthCheckType.HTTP)
    checks = HealthCheck(type=kind, unhealthy_threshold=1, healthy_threshold=1, **check)  # type: ignore[arg-type]
    upstream = Upstream(id="u", targets=(Target(Endpoint(host, int(port))),), health_check=checks)
    return UpstreamPool(upstream, log=get_logger("proxy")), checks


async def test_a_target_with_an_unexpected_status_is_unhealthy_until_it_recovers() -> None:
    async with ScriptedServer(lambda request: ScriptedResponse(500)) as server:
        pool, check = checked_pool(server, path="/ready", host="h.test", expected_status=204)
        before = pool.status.targets[0].status

        await pool.check_targets(check)
        failed, chosen = pool.status.targets[0].status, pool.choose()
        server.script = lambda request: ScriptedResponse(204)
        await pool.check_targets(check)
        recovered = pool.status.targets[0].status
        await pool.close()

    assert (before, failed, chosen, recovered) == ("unknown", "unhealthy", None, "healthy")
    assert (server.requests[0].path, server.requests[0].headers["Host"]) == ("/ready", "h.test")


@pytest.mark.parametrize("kind", list(HealthCheckType))
async def test_a_target_that_refuses_connections_is_unhealthy(kind: HealthCheckType) -> None:
    async with ScriptedServer(ok) as server:
        pool, check = checked_pool(server, type=kind, path="/")
        await pool.check_targets(check)
        before = pool.status.targets[0].status
    await pool.check_targets(check)
    await pool.close()

    assert (before, pool.status.targets[0].status) == ("healthy", "unhealthy")


async def test_a_check_that_cannot_be_sent_fails_the_target_and_nothing_else() -> None:
    async with ScriptedServer(ok) as server:
        pool, check = checked_pool(server, path="no-slash")
        await pool.check_targets(check)
        await pool.close()

    assert pool.status.targets[0].status == "unhealthy"


async def test_an_unhealthy_target_is_passed_over_and_with_none_left_it_is_503() -> None:
    async with AsyncExitStack() as stack:
        first, second = await two_servers(stack)
        async with running_proxy(ROUTES + upstream("u", first.url, second.url)) as proxy:
            pool = proxy.proxy.pools["u"]
            check = HealthCheck(type=HealthCheckType.HTTP, unhealthy_threshold=1, path="/")
            first.script = lambda request: ScriptedResponse(500)
            await pool.check_targets(check)
            statuses = await send(proxy, 4)
            second.script = first.script
            await pool.check_targets(check)
            unavailable = await send(proxy, 1)
            counted = proxy.metric("zentinel_upstream_failures_total", reason="unavailable")

    assert (statuses, unavailable, counted) == ([200] * 4, [503], 1)
    assert len(first.requests) == 2


async def test_checks_run_by_themselves_from_the_start() -> None:
    checked = 'health-check { type "http" { path "/ready" } }'
    async with ScriptedServer(ok) as server:
        text = ROUTES + upstream("u", server.url, more=checked)
        async with running_proxy(text) as proxy:
            while proxy.proxy.pools["u"].status.targets[0].status == "unknown":
                await send(proxy, 1)

    assert "GET /ready" in server.paths
