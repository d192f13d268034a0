"""Test servers on a free port of loopback."""

from __future__ import annotations

import ssl

from aiohttp import web


async def listen(runner: web.BaseRunner, *, tls: ssl.SSLContext | None = None) -> str:
    """Start the server and return its URL."""
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    return f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
