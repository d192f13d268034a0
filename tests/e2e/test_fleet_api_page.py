"""The page on which the API can be read, in a real browser: it comes whole, and fetches nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import msgspec

from tests.support.fleet.http_client import FleetHttp
from tests.support.processes.service import ApiProcess

CHROMIUM = shutil.which("chromium")


class _Visit(msgspec.Struct, frozen=True):
    """A page as the browser has it."""

    dom: str
    requests: list[str]
    """Every URL that was asked for by the page, or to get it."""
    console: list[str]
    """What the browser complained of: scripts that failed, content that its policy forbids."""


async def visit(url: str, directory: Path) -> _Visit:
    """Opens a page in a browser that can reach nothing but this machine."""
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
    # What the browser asks for on its own account, such as updates, is for another site, and gets nowhere.
    for_the_page = r'"SiteForCookies: \{site=http://127\.0\.0\.1[^"]*","url":"([^"]*)"'
    asked = re.findall(for_the_page, log.read_text(errors="replace"))
    console = [line for line in errors.decode(errors="replace").splitlines() if ":CONSOLE" in line]
    return _Visit(dom.decode(), asked, console)


async def test_the_page_shows_every_operation_and_loads_nothing_else(tmp_path: Path) -> None:
    async with (
        ApiProcess(f"sqlite:///{tmp_path / 'fleet.db'}", directory=tmp_path) as api,
        FleetHttp(await api.url()) as fleet,
    ):
        url = await api.url()
        document = await fleet.get("/openapi.json")

        page = await visit(f"{url}/docs", tmp_path)

    assert page.console == []
    assert f"{url}/docs" in page.requests
    assert [each for each in page.requests if not each.startswith(f"{url}/")] == []
    for path in document["paths"]:
        assert path in page.dom.replace("<wbr>", "")
    assert "clusters" in page.dom


async def test_nothing_on_the_page_points_to_another_host(tmp_path: Path) -> None:
    async with (
        ApiProcess(f"sqlite:///{tmp_path / 'fleet.db'}", directory=tmp_path) as api,
        FleetHttp(await api.url()) as fleet,
    ):
        page = await fleet.call("GET", "/docs")

    html = page.content.decode()
    policy = page.headers["Content-Security-Policy"]
    assert re.findall(r"""(?:src|href|action|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", html) == []
    assert "default-src 'none'" in policy
    assert "http" not in policy
