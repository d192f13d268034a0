"""The documentation page of the API in a real browser: it is complete and loads nothing from other hosts."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess

CHROMIUM = shutil.which("chromium")


class LoadedPage(msgspec.Struct, frozen=True):
    """A page that a browser has loaded."""

    dom: str
    requests: list[str]
    """The URL of the page and every URL that it loads."""
    console: list[str]
    """Messages of the browser: failed scripts, and content that the policy blocks."""


async def load(url: str, directory: Path) -> LoadedPage:
    """Load a page in a browser that can connect to this machine only."""
    assert CHROMIUM is not None, "no chromium: run `make e2e`, which installs it"
    log = directory / "network.json"
    browser = await asyncio.create_subprocess_exec(
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--enable-logging=stderr",
        f"--user-data-dir={directory / 'profile'}",
        f"--log-net-log={log}",
        "--dump-dom",
        url,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            dom, errors = await browser.communicate()
    finally:
        if browser.returncode is None:
            browser.kill()
            await browser.wait()
    # Requests of the browser itself, such as for updates, belong to other sites.
    page_request = r'"SiteForCookies: \{site=http://127\.0\.0\.1[^"]*","url":"([^"]*)"'
    requests = re.findall(page_request, log.read_text(errors="replace"))
    console = [line for line in errors.decode(errors="replace").splitlines() if ":CONSOLE" in line]
    return LoadedPage(dom.decode(), requests, console)


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with ApiProcess(f"sqlite:///{tmp_path / 'fleet.db'}", directory=tmp_path) as api:
        yield await api.url()


async def test_the_page_shows_every_operation_and_loads_nothing_else(url: str, tmp_path: Path) -> None:
    async with FleetHttp(url) as fleet:
        document = await fleet.get("/openapi.json")

    page = await load(f"{url}/docs", tmp_path)

    assert page.console == []
    assert f"{url}/docs" in page.requests
    assert [each for each in page.requests if not each.startswith(f"{url}/")] == []
    for path in document["paths"]:
        assert path in page.dom.replace("<wbr>", "")
    assert "clusters" in page.dom


async def test_nothing_on_the_page_points_to_another_host(url: str) -> None:
    async with FleetHttp(url) as fleet:
        page = await fleet.call("GET", "/docs")

    html = page.content.decode()
    policy = page.headers["Content-Security-Policy"]
    assert re.findall(r"""(?:src|href|action|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", html) == []
    assert "default-src 'none'" in policy
    assert "http" not in policy
