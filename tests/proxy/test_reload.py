"""A reload replaces the configuration while requests are in flight, or changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.ports.errors import Misconfigured
from sentinel.proxy.configuration_file import LoadedConfiguration
from sentinel.runtime.listening import ListenError
from tests.proxy.running_proxy import client, forward_all, running_proxy
from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer


class Backend(ScriptedServer):
    """Responds with its name; to `/slow` only when it is released."""

    def __init__(self, name: str) -> None:
        super().__init__(self._answer)
        self.name = name
        self.arrived = asyncio.Event()
        self.released = asyncio.Event()

    async def _answer(self, request: ReceivedRequest) -> ScriptedResponse:
        if request.path == "/slow":
            self.arrived.set()
            await self.released.wait()
        return ScriptedResponse(200, self.name.encode())


async def test_a_request_in_flight_ends_with_the_configuration_it_began_with() -> None:
    async with (
        Backend("old") as old,
        Backend("new") as new,
        running_proxy(forward_all(old.url)) as proxy,
        client() as http,
    ):
        slow = asyncio.create_task(http.get(f"{proxy.url}/slow"))
        await old.arrived.wait()
        pool = proxy.proxy.pools["u"]

        await proxy.reload(forward_all(new.url))
        after = await (await http.get(proxy.url)).text()
        old.released.set()
        during = await (await slow).text()

        async with asyncio.timeout(60):
            await pool.wait_until_closed()

    assert (during, after) == ("old", "new")


async def test_an_unchanged_upstream_keeps_its_connections_and_its_health() -> None:
    async with Backend("b") as backend, running_proxy(forward_all(backend.url)) as proxy:
        pool = proxy.proxy.pools["u"]

        await proxy.reload(forward_all(backend.url, route='priority "high"'))

        assert proxy.proxy.pools["u"] is pool


async def test_an_invalid_file_changes_nothing_and_says_why() -> None:
    async with Backend("b") as backend, running_proxy(forward_all(backend.url)) as proxy, client() as http:
        proxy.wanted = LoadedConfiguration(configuration=None, problems=("f:1:2: bad", "f:3:4: worse"))

        with pytest.raises(Misconfigured, match="f:1:2: bad; f:3:4: worse"):
            await proxy.proxy.reload()

        assert await (await http.get(proxy.url)).text() == "b"


async def test_a_reload_warns_of_what_the_file_before_did_not_have(caplog: pytest.LogCaptureFixture) -> None:
    async with running_proxy("") as proxy:
        assert proxy.wanted.configuration is not None
        for ignored in (("waf",), ("waf", "cache"), ("waf", "cache")):
            proxy.wanted = LoadedConfiguration(
                configuration=proxy.wanted.configuration, warnings=("w",), unimplemented=ignored
            )
            await proxy.proxy.reload()

    logged = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert logged == ["settings.warning", "proxy.not_implemented", "proxy.not_implemented"]


async def test_a_thousand_problems_are_a_short_line() -> None:
    async with running_proxy("") as proxy:
        proxy.wanted = LoadedConfiguration(configuration=None, problems=tuple(map(str, range(1_000))))

        with pytest.raises(Misconfigured, match=r"; 19; and 980 more$"):
            await proxy.proxy.reload()


async def test_listeners_stay_until_a_restart_and_the_rest_applies(caplog: pytest.LogCaptureFixture) -> None:
    health = 'routes { route "h" { matches { path "/h" }; builtin-handler "health" } }\n'
    moved = 'listeners { listener "web" { address "127.0.0.1:1" } }\n'
    async with running_proxy("") as proxy, client() as http:
        address = proxy.address
        proxy.listeners = moved

        await proxy.reload(health)
        response = await http.get(f"http://{address}/h")

    assert response.status == 200
    warning = next(record for record in caplog.records if record.message == "reload.restart_required")
    assert getattr(warning, "fields")["blocks"] == ("listeners",)  # noqa: B009  # mypy does not know it


async def test_metrics_move_to_another_path_and_address_and_end(unused_tcp_port: int) -> None:
    def metrics(path: str, port: int) -> str:
        return f'observability {{ metrics {{ address "127.0.0.1:{port}"; path "{path}" }} }}\n'

    async with running_proxy(metrics("/a", unused_tcp_port)) as proxy, client() as http:
        url = f"http://127.0.0.1:{unused_tcp_port}"
        first = (await http.get(f"{url}/a")).status
        await proxy.reload(metrics("/b", unused_tcp_port))
        renamed = [(await http.get(f"{url}{path}")).status for path in ("/a", "/b")]
        taken = proxy.address.rpartition(":")[2]
        with pytest.raises(ListenError):
            await proxy.reload(metrics("/b", int(taken)))
        kept = (await http.get(f"{url}/b")).status
        await proxy.reload("")
        with pytest.raises(OSError, match="Cannot connect"):
            await http.get(f"{url}/b")

    assert (first, renamed, kept) == (200, [404, 200], 200)
