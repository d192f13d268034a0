"""`sentinel up --agents`: agents and proxies as real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from sentinel.cli.up.instances.ports import Ports
from tests.support.processes.up import TIMEOUT, UpProcess, get

QUICK = {"SENTINEL_OFFLINE_THRESHOLD": "60s"}
"""A machine that stalls must not look like an agent that is gone."""


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below this one, with their commands."""
    found: dict[int, str] = {}
    with suppress(FileNotFoundError, ProcessLookupError):  # threads and processes end meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in map(int, (thread / "children").read_text().split()):
                    found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                    found |= descendants(child)
    return found


def is_running(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def first_of(processes: Mapping[int, str], words: str) -> int:
    return next(pid for pid, command in processes.items() if words in command)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110  # processes have no signal for others
            await asyncio.sleep(0.05)


async def until_services(pid: int, count: int, *, without: frozenset[int] = frozenset()) -> dict[int, str]:
    """Wait until so many agents and proxies run below this process, none of them `without`, and return them."""
    found: dict[int, str] = {}

    def is_complete() -> bool:
        nonlocal found
        # An agent starts a proxy with --test for a moment.
        found = {child: command for child, command in descendants(pid).items() if " --test " not in command}
        return len(found) == count and without.isdisjoint(found)

    await until(is_complete)
    return found


async def instances(url: str) -> dict[str, dict[str, Any]]:
    _, body = await get(f"{url}/api/v1/instances")
    return {each["id"]: each for each in msgspec.json.decode(body)["items"]}


def runs(instance: Mapping[str, Any], version: str) -> bool:
    return bool(instance["in_sync"] and instance["assigned"] == version and instance["current"])


async def until_instances(url: str, condition: Callable[[Mapping[str, dict[str, Any]]], bool]) -> None:
    seen: Mapping[str, Any] = {}
    try:
        async with asyncio.timeout(TIMEOUT):
            while not condition(seen := await instances(url)):  # noqa: ASYNC110  # it is polled over HTTP
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"expected something else of the instances within {TIMEOUT} s, got {seen}") from None


def proxy_url(data_dir: Path, number: int) -> str:
    ports = msgspec.json.decode((data_dir / "instances" / "ports.json").read_bytes(), type=Ports)
    return f"http://127.0.0.1:{ports.listener + number}"


async def test_agents_and_proxies_run_restart_and_end_with_up(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--agents=2", environ=QUICK) as up:
        url = await up.url()
        registered = await instances(url)
        await until_instances(url, lambda seen: all(runs(each, "edge@1") for each in seen.values()))
        before = await until_services(up.pid, 4)
        response = await get(f"{proxy_url(tmp_path, 2)}/anything")

        agent, proxy = first_of(before, " agent "), first_of(before, " proxy ")
        for pid in (agent, proxy):
            os.kill(pid, signal.SIGKILL)
        await up.until_event("part.failed")
        during = await until_services(up.pid, 4, without=frozenset((agent, proxy)))
        ended = await up.stop()

    assert {each["labels"]["zone"] for each in registered.values()} == {"a", "b"}
    assert sorted(registered) == ["edge-1", "edge-2"]
    assert response == (200, b"hello from the application\n")
    assert len(before) == len(during) == 4
    assert {agent, proxy}.isdisjoint(during)
    assert ended == 0
    assert not any(map(is_running, during))


async def test_nothing_outlives_up_when_it_is_killed(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--agents=1", environ=QUICK) as up:
        await up.url()
        await until_services(up.pid, 2)
        processes = descendants(up.pid)

        os.kill(up.pid, signal.SIGKILL)
        await until(lambda: not any(map(is_running, processes)))

    assert len(processes) >= 2


async def test_the_demo_rolls_out_a_good_configuration_and_stops_a_bad_one(tmp_path: Path) -> None:
    async with UpProcess(tmp_path, "--demo", "--agents=3", environ=QUICK) as up:
        url = await up.url()
        try:
            await up.until_printed("sees edge@2 completed")
            await up.until_printed("sees edge@4 failed, rollback completed")
        finally:
            _, body = await get(f"{url}/api/v1/deployments")
        await until_instances(url, lambda seen: all(runs(each, "edge@2") for each in seen.values()))
        response = await get(f"{proxy_url(tmp_path, 1)}/")
        ended = await up.stop()

    bad, good = msgspec.json.decode(body)["items"]
    assert (good["state"], good["rollback"]) == ("completed", "none")
    assert (bad["state"], bad["rollback"]) == ("failed", "completed")
    assert "error_rate" in bad["reason"]
    assert sum(bad["counts"].values()) == 3
    assert (bad["counts"]["rolled_back"], bad["counts"]["skipped"]) == (1, 2)
    assert response == (200, b"good morning from the application\n")
    assert ended == 0
