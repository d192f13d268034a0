"""Where the servers of tests listen: on loopback, at whichever port is free."""

from __future__ import annotations

import ssl

from aiohttp import web


async def listen(runner: web.BaseRunner, *, tls: ssl.SSLContext | None = None) -> str:
    """Has it begin to serve; its URL."""
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    return f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
