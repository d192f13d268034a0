"""`sentinel proxy` as a process: reloads under load, broken files, dead targets, draining, TLS."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
import trustme

from tests.support.http.scripted_server import ReceivedRequest, ScriptedResponse, ScriptedServer
from tests.support.processes.proxy import ProxyProcess
from tests.support.processes.service import run_command

RELOADS = 50
WORKERS = 8

LISTENER = 'listeners { listener "web" { address "127.0.0.1:{port}" } }\n'
BUILTIN = """
    route "health" { priority high; matches { path "/health" }; builtin-handler "health" }
    route "upstreams" { priority high; matches { path "/upstreams" }; builtin-handler "upstreams" }
    route "metrics" { priority high; matches { path "/metrics" }; builtin-handler "metrics" }
"""


def forwarding(*servers: ScriptedServer, system: str = "", route: str = "", upstream: str = "") -> str:
    """Return a configuration that forwards everything but builtin routes to these servers."""
    targets = "; ".join(f'target "{server.url.removeprefix("http://")}"' for server in servers)
    return (
        f"system {{ {system} }}\n{LISTENER}"
        f'routes {{ {BUILTIN} route "all" {{ matches {{ path-prefix "/" }}; upstream "u"\n{route} }} }}\n'
        f'upstreams {{ upstream "u" {{ {targets}\n{upstream} }} }}\n'
    )


def named(name: str) -> ScriptedServer:
    return ScriptedServer(lambda request: ScriptedResponse(200, name.encode()))


class Load:
    """Clients that send requests one after the other, and count what comes back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.results: Counter[object] = Counter()
        self._is_over = False

    async def __aenter__(self) -> Load:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        self._tasks = [asyncio.create_task(self._send(n)) for n in range(WORKERS)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)
        await self._session.close()

    async def _send(self, number: int) -> None:
        body = bytes(1_000 * number)
        while not self._is_over:
            send = self._session.get(self.url) if number % 2 else self._session.post(self.url, data=body)
            try:
                async with send as response:
                    self.results[response.status, await response.text()] += 1
            except (aiohttp.ClientError, TimeoutError) as failure:
                self.results[repr(failure)] += 1


async def test_no_request_fails_while_the_file_is_reloaded_fifty_times(tmp_path: Path) -> None:
    async with named("blue") as blue, named("green") as green:
        texts = (forwarding(blue), forwarding(green, route='policies { response-headers { set { X-A "1" } } }'))
        async with ProxyProcess(tmp_path, texts[0]) as proxy:
            await proxy.until_started()

            async with Load(proxy.url) as load:
                for number in range(RELOADS):
                    await proxy.reload(texts[(number + 1) % 2])
            code = await proxy.stop()

    assert set(load.results) == {(200, "blue"), (200, "green")}
    assert sum(line.get("event") == "service.reloaded" for line in proxy.lines) == RELOADS
    assert code == 0


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ProxyProcess]:
    """Forwards to a server named `old`."""
    async with named("old") as old, ProxyProcess(tmp_path, forwarding(old)) as running:
        await running.until_started()
        yield running


async def test_a_broken_file_changes_nothing_and_the_log_says_why(proxy: ProxyProcess) -> None:
    async with named("new") as new, aiohttp.ClientSession() as http:
        failed = await proxy.reload("system { auto-reload true }", expecting="reload.failed")
        during = await (await http.get(proxy.url)).text()
        await proxy.reload(forwarding(new))
        after = await (await http.get(proxy.url)).text()

    assert f"{proxy.file}:1:22: " in failed["error"]
    assert (during, after) == ("old", "new")


async def test_changed_listeners_need_a_restart_and_the_rest_applies(proxy: ProxyProcess) -> None:
    async with named("new") as new, aiohttp.ClientSession() as http:
        moved = forwarding(new).replace("{port}", "1")
        warned = await proxy.reload(moved, expecting="reload.restart_required")
        await proxy.until_event("service.reloaded")
        after = await (await http.get(proxy.url)).text()

    assert warned["blocks"] == ["listeners"]
    assert after == "new"


async def test_a_killed_target_costs_no_request_and_is_found_unhealthy(tmp_path: Path) -> None:
    check = 'health-check { type "tcp"; interval-secs 1; unhealthy-threshold 1; healthy-threshold 1 }'
    async with AsyncExitStack() as stack:
        survivor = await stack.enter_async_context(named("survivor"))
        victim = named("victim")
        await victim.__aenter__()
        text = forwarding(survivor, victim, route="retry-policy { max-attempts 2 }", upstream=check)
        proxy = await stack.enter_async_context(ProxyProcess(tmp_path, text))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        await proxy.until_started()
        before = {await (await http.get(proxy.url)).text() for _ in range(4)}

        await victim.__aexit__(None, None, None)
        statuses = Counter([(await http.get(proxy.url)).status for _ in range(20)])
        await proxy.until_event("target.unhealthy")
        upstreams = await (await http.get(f"{proxy.url}/upstreams")).json()

    assert before == {"survivor", "victim"}
    assert statuses == {200: 20}
    assert [target["status"] for target in upstreams["upstreams"][0]["targets"]] == ["healthy", "unhealthy"]


class Slow(ScriptedServer):
    """Responds only when it is released."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.arrived = asyncio.Event()
        self.released = asyncio.Event()

    async def _wait(self, request: ReceivedRequest) -> ScriptedResponse:
        self.arrived.set()
        await self.released.wait()
        return ScriptedResponse(200, b"done")


async def test_sigterm_ends_requests_in_progress_before_it_exits_0(tmp_path: Path) -> None:
    pid_file = tmp_path / "proxy.pid"
    async with (
        Slow() as slow,
        aiohttp.ClientSession() as http,
        ProxyProcess(tmp_path, forwarding(slow, system=f'pid-file "{pid_file}"')) as proxy,
    ):
        await proxy.until_started()
        pid = pid_file.read_text()
        request = asyncio.create_task(http.get(proxy.url))
        await slow.arrived.wait()

        proxy.send_signal(signal.SIGTERM)
        await proxy.until_event("proxy.draining", requests=1)
        slow.released.set()
        body = await (await request).text()
        code = await proxy.exit_code()

    assert (body, code, pid) == ("done", 0, f"{proxy.pid}\n")
    assert not pid_file.exists()


async def test_sigterm_does_not_wait_for_idle_connections(tmp_path: Path) -> None:
    system = "graceful-shutdown-timeout-secs 3600"
    async with named("backend") as backend, ProxyProcess(tmp_path, forwarding(backend, system=system)) as proxy:
        await proxy.until_started()
        idle = await asyncio.open_connection("127.0.0.1", proxy.port)
        async with aiohttp.ClientSession() as http:
            first = await (await http.get(proxy.url)).text()

            code = await proxy.stop()
        rest = await idle[0].read()
        idle[1].close()

    assert (first, rest, code) == ("backend", b"", 0)
    assert not any(line.get("event") == "proxy.requests_cut_off" for line in proxy.lines)


async def test_a_request_that_never_ends_is_cut_off_after_the_graceful_timeout(tmp_path: Path) -> None:
    async with Slow() as slow, aiohttp.ClientSession() as http:
        async with ProxyProcess(tmp_path, forwarding(slow, system="graceful-shutdown-timeout-secs 1")) as proxy:
            await proxy.until_started()
            request = asyncio.create_task(http.get(proxy.url))
            await slow.arrived.wait()

            code = await proxy.stop()
            failure = (await asyncio.gather(request, return_exceptions=True))[0]
        slow.released.set()

    assert code == 0
    assert isinstance(failure, aiohttp.ClientError)
    assert any(line.get("event") == "proxy.requests_cut_off" for line in proxy.lines)


async def test_a_tls_listener_serves_health_and_metrics(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key, ca = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(ca))
    tls = f'protocol "https"; tls {{ cert-file "{certificate}"; key-file "{key}" }}'
    listener = f'listeners {{ listener "web" {{ address "127.0.0.1:{{port}}"; {tls} }} }}\n'
    context = ssl.create_default_context(cafile=ca)
    async with ProxyProcess(tmp_path, f"system\n{listener} routes {{ {BUILTIN} }}") as proxy:
        await proxy.until_started()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http:
            health = await (await http.get(f"https://127.0.0.1:{proxy.port}/health")).json()
            metrics = await (await http.get(f"https://127.0.0.1:{proxy.port}/metrics")).text()

    assert health["status"] == "healthy"
    assert 'zentinel_requests_total{method="GET",route="health",status="200"} 1.0' in metrics


async def test_what_is_not_implemented_is_one_warning(tmp_path: Path) -> None:
    more = "system { worker-threads 4 }\nlimits { max-body-size 5 }\n"
    async with ProxyProcess(tmp_path, f"{more}{LISTENER} routes {{ {BUILTIN} }}") as proxy:
        await proxy.until_started()

    (warning,) = [line for line in proxy.lines if line.get("event") == "proxy.not_implemented"]
    assert warning["level"] == "warning"
    assert warning["ignored"] == ["system.worker-threads", "limits"]


async def test_a_file_can_be_tested_without_running_it(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.kdl", tmp_path / "bad.kdl"
    good.write_text(f"system\n{LISTENER.replace('{port}', '8080')}")
    bad.write_text("system { auto-reload true }")

    tested, refused, started = [
        await run_command("proxy", "-c", good, "--test"),
        await run_command("proxy", "-c", bad, "--test"),
        await run_command("proxy", "-c", bad),
    ]

    assert (tested.code, refused.code, started.code) == (0, 1, 2)
    assert tested.stdout == f"sentinel: configuration file {good} test is successful\n"
    assert f"{bad}:1:22: " in refused.stderr
    assert refused.stderr == started.stderr
    assert refused.stdout == started.stdout == ""
