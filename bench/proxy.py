"""The small proxy: requests per CPU second, relative to aiohttp's own bare handler.

    python -m bench.proxy [--rounds N] [--output json]

The bare handler is a process that responds with 200 bytes and does nothing else. The proxy is another process that
forwards the same requests to it: it is a server and a client, so it can never reach the bare handler. CPU is that
of one process, from the kernel, the minimum of alternating rounds.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.budget import Budget, table
from bench.command_line import DEFAULT_ROUNDS, main
from bench.processes import cpu_seconds, peak_mebibytes
from tests.support.processes.proxy import ProxyProcess
from tools.services.server import free_port

RATIO = 0.1
"""The floor: requests per CPU second of the proxy, relative to the bare handler."""
CONNECTIONS = 16
REQUESTS = 200
"""On each connection, in each round."""

_REQUEST = b"GET /api/items HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
_BARE = """
import asyncio, sys
from aiohttp import web

async def respond(request):
    return web.Response(body=bytes(200))

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(web.Server(respond, access_log=None), "127.0.0.1", int(sys.argv[1]))
    print("listening", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""
_CONFIGURATION = """
system
listeners {{ listener "web" {{ address "127.0.0.1:{{port}}" }} }}
routes {{
    route "health" {{ priority high; matches {{ path "/health" }}; builtin-handler "health" }}
    route "api" {{ matches {{ path-prefix "/api" }}; upstream "api" }}
}}
upstreams {{ upstream "api" {{ target "127.0.0.1:{}" }} }}
"""


class ProxyFigures(msgspec.Struct, frozen=True):
    """CPU microseconds of a request, and the memory of the proxy."""

    bare: float
    proxy: float
    peak_mebibytes: float

    @property
    def ratio(self) -> float:
        """Requests per CPU second of the proxy, relative to the bare handler."""
        return self.bare / self.proxy


async def measure(*, rounds: int = DEFAULT_ROUNDS) -> ProxyFigures:
    """Send the same requests to both, alternately."""
    port = free_port()
    bare = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _BARE, str(port), stdout=asyncio.subprocess.PIPE
    )
    assert bare.stdout is not None
    try:
        await bare.stdout.readline()
        with tempfile.TemporaryDirectory() as directory:
            async with ProxyProcess(Path(directory), _CONFIGURATION.format(port)) as proxy:
                await proxy.until_started()
                ports = {bare.pid: port, proxy.pid: proxy.port}
                best = dict.fromkeys(ports, float("inf"))
                for _ in range(rounds):
                    for pid, target in ports.items():
                        before = cpu_seconds(pid)
                        await _send_all(target)
                        microseconds = (cpu_seconds(pid) - before) / (CONNECTIONS * REQUESTS) * 1e6
                        best[pid] = min(best[pid], microseconds)
                return ProxyFigures(best[bare.pid], best[proxy.pid], peak_mebibytes(proxy.pid))
    finally:
        bare.kill()
        await bare.wait()


def budgets(figures: ProxyFigures) -> list[Budget]:
    what = "small proxy: requests per CPU second relative to aiohttp's bare handler"
    return [Budget(what, figures.ratio, "×", RATIO, is_floor=True)]


def section(figures: ProxyFigures) -> list[str]:
    """Return the section of the performance page."""
    return [
        "\n## The small proxy\n",
        f"Requests without a body, responses of 200 bytes, {CONNECTIONS} connections. For each request the proxy",
        "is a server and a client.\n",
        *table(
            ("what", "CPU per request", "requests per CPU second"),
            (
                ("aiohttp's bare handler", f"{figures.bare:.0f} µs", f"{1e6 / figures.bare:,.0f}"),
                ("`sentinel proxy`, forwarding to it", f"{figures.proxy:.0f} µs", f"{1e6 / figures.proxy:,.0f}"),
            ),
        ),
        f"\nPeak memory of the proxy: {figures.peak_mebibytes:.0f} MiB.",
    ]


async def _send_all(port: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(_send(port))


async def _send(port: int) -> None:
    """Send requests on one connection, each after the response to the last."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(REQUESTS):
        writer.write(_REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert b"content-length: 200" in head.lower(), head
        await reader.readexactly(200)
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    sys.exit(main("proxy", __doc__, measure, budgets, section, rounds=DEFAULT_ROUNDS))
