"""An agent applies to a real proxy: it is killed at each of its writes, and the disk is full or read-only.

The agent runs without a hub, as a process that is handed one task.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sentinel.core.agent.apply import Step
from sentinel.core.agent.state import AgentState
from sentinel.core.hub.versions import content_hash
from tests.support.agent.disks import fill, read_only, small_disk
from tests.support.processes.proxy import ProxyProcess

_PROGRAM = ("-m", "tests.e2e.applier_process")
_MAX_POINTS = 120
APPLYING = (Step.RENDERING, Step.TESTING, Step.WRITING, Step.RELOADING, Step.CHECKING)
_HEALTH = 'route "health" { priority high; matches { path "/health" }; builtin-handler "health" }'


def version(name: str, *, health: str = _HEALTH, system: str = "") -> str:
    """A version that answers at its own path."""
    return (
        f'system {{ pid-file "{{pid_file}}"\n{system} }}\n'
        'listeners { listener "web" { address "127.0.0.1:{port}" } }\n'
        f'routes {{ {health}\nroute "{name}" {{ matches {{ path "/{name}" }}; builtin-handler "status" }} }}\n'
    )


class Finished(msgspec.Struct, frozen=True):
    """How an agent has ended."""

    code: int
    stdout: str


class Host:
    """A machine with a proxy, which runs api@1, and an agent."""

    def __init__(
        self,
        folder: Path,
        proxy: ProxyProcess,
        http: aiohttp.ClientSession,
        agents: asyncio.subprocess.Process,
    ) -> None:
        """`agents` runs an agent for each line that it gets."""
        self.folder = folder
        self._agents = agents
        self.proxy = proxy
        self.file = proxy.file
        self.state = folder / "state"
        self._http = http
        self.versions = folder / "versions"
        self.versions.mkdir()
        self.texts: dict[str, str] = {}

    def add(self, name: str, text: str) -> None:
        text = text.replace("{pid_file}", str(self.folder / "proxy.pid")).replace("{port}", str(self.proxy.port))
        self.texts[name] = text
        (self.versions / name).write_text(text)

    def configure(self, *, state: Path | None = None, config: Path | None = None, **proxy: object) -> Path:
        """Write the agent's settings."""
        self.state = state or self.state
        file = self.folder / "agent.yaml"
        file.write_bytes(
            msgspec.json.encode(
                {
                    "hub": {"address": "127.0.0.1:9"},
                    "instance": {"id": "edge-1"},
                    "proxy": {
                        "config_path": str(config or self.file),
                        "test_command": [],
                        "reload": {"pid_file": str(self.folder / "proxy.pid")},
                        "health_url": f"{self.proxy.url}/health",
                        "health": {"attempts": 3, "interval": "100ms", "timeout": "30s"},
                        **proxy,
                    },
                    "state_dir": str(self.state),
                }
            )
        )
        return file

    async def apply(self, name: str, *options: object) -> Finished:
        """Let the agent apply a version."""
        words = [str(each) for each in (self.folder / "agent.yaml", self.versions, name, *options)]
        assert self._agents.stdin is not None
        assert self._agents.stdout is not None
        self._agents.stdin.write(msgspec.json.encode(words) + b"\n")
        async with asyncio.timeout(90):
            return msgspec.json.decode(await self._agents.stdout.readline(), type=Finished)

    async def status(self, path: str) -> int:
        async with self._http.get(f"{self.proxy.url}{path}") as response:
            return response.status

    async def until_serving(self, name: str) -> None:
        async with asyncio.timeout(90):
            while await self.status(f"/{name}") != 200:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)

    async def serve_again(self, name: str, prepared: Path) -> None:
        """Go back to where a version runs, with the agent's state of that time."""
        shutil.rmtree(self.state)
        shutil.copytree(prepared, self.state, symlinks=True)
        self.file.write_text(self.texts[name])
        self.proxy.send_signal(signal.SIGHUP)
        await self.until_serving("v1")


def left_behind(host: Host) -> Sequence[str]:
    """Name what an agent needs only while it writes."""
    found = (each.name for folder in (host.file.parent, host.state) for each in folder.iterdir())
    return [name for name in found if name.startswith(".") or name.endswith(".candidate")]


def lines(command: Finished) -> Sequence[dict[str, Any]]:
    """The reports, and what a heartbeat says at the end."""
    assert command.code == 0
    return [msgspec.json.decode(line) for line in command.stdout.splitlines()]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """A machine whose agent has applied api@1."""
    text = version("v1").replace("{pid_file}", str(tmp_path / "proxy.pid"))
    agents = await asyncio.create_subprocess_exec(
        sys.executable, *_PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    async with ProxyProcess(tmp_path, text) as proxy, aiohttp.ClientSession() as http:
        await proxy.until_started()
        host = Host(tmp_path, proxy, http, agents)
        host.add("api@1", version("v1"))
        host.add("api@2", version("v2"))
        host.add("api@3", version("v3", health=""))
        host.add("api@4", "system {")
        host.configure()
        assert lines(await host.apply("api@1"))[-1]["version"] == "api@1"
        yield host
    assert agents.stdin is not None
    agents.stdin.close()
    await agents.wait()


async def _kill_at_each_write(
    host: Host, name: str, check: Callable[[Host, Sequence[dict[str, Any]]], None]
) -> Sequence[Step]:
    """Kill the agent at its first, second … write while it applies a version, and start it again.

    Returns at which steps of the apply it was killed.
    """
    host.configure(test_command=["grep", "listeners", "{config}"])
    prepared = host.folder / "prepared"
    shutil.copytree(host.state, prepared, symlinks=True)
    steps: list[Step] = []
    for point in range(1, _MAX_POINTS):
        killed = await host.apply(name, "--order", "d-1", "--die-at", point)
        if killed.code != -signal.SIGKILL:
            return steps
        apply = msgspec.json.decode((host.state / "state.json").read_bytes(), type=AgentState).apply
        steps += [apply.step] if apply is not None else []
        assert host.file.read_text() in (host.texts["api@1"], host.texts[name])
        # The proxy may still be at the reload that the agent asked for before it was killed.
        assert 200 in [await host.status(path) for path in ("/v1", f"/v{name[-1]}", "/v1")]

        said = lines(await host.apply(name, "--order", "d-1"))

        check(host, said)
        assert left_behind(host) == []
        await host.serve_again("api@1", prepared)
    raise AssertionError("it never came to its end")


async def test_an_agent_killed_at_any_write_completes_after_a_restart(host: Host) -> None:
    def check(host: Host, said: Sequence[dict[str, Any]]) -> None:
        *reports, running = said
        assert reports[-1]["state"] == "COMPLETED"
        assert host.file.read_text() == host.texts["api@2"]
        assert (running["version"], running["hash"]) == ("api@2", content_hash(host.texts["api@2"]))
        assert running["message"] == ""

    steps = await _kill_at_each_write(host, "api@2", check)

    assert {*steps} == {*APPLYING}
    await host.until_serving("v2")


async def test_an_agent_killed_while_a_version_fails_ends_with_the_one_before(host: Host) -> None:
    def check(host: Host, said: Sequence[dict[str, Any]]) -> None:
        *reports, running = said
        assert reports[-1]["state"] == "FAILED"
        assert reports[-1]["message"] == "health check failed after 3 attempts"
        assert host.file.read_text() == host.texts["api@1"]
        assert (running["version"], running["hash"]) == ("api@1", content_hash(host.texts["api@1"]))

    steps = await _kill_at_each_write(host, "api@3", check)

    assert {*steps} == {*Step} - {Step.ENDED}
    assert await host.status("/health") == 200


async def test_the_proxy_s_own_test_stops_a_broken_version(host: Host) -> None:
    host.configure(test_command=[sys.executable, "-m", "sentinel.cli", "proxy", "--test", "-c", "{config}"])

    *reports, running = lines(await host.apply("api@4", "--order", "d-1"))

    assert [each["state"] for each in reports] == ["ACCEPTED", "IN_PROGRESS", "FAILED"]
    assert reports[-1]["message"].startswith(f"the proxy does not accept it: {host.file}:1:")
    assert host.file.read_text() == host.texts["api@1"]
    assert running["message"].startswith("api@4: the proxy does not accept it")


async def test_a_reload_that_is_refused_restores_the_version_before(host: Host) -> None:
    host.configure(reload={"command": ["sh", "-c", "echo the unit is masked >&2; exit 1"]})

    *reports, running = lines(await host.apply("api@2", "--order", "d-1"))

    assert reports[-1]["state"] == "FAILED"
    assert "the unit is masked" in reports[-1]["message"]
    assert host.file.read_text() == host.texts["api@1"]
    assert running["hash"] == content_hash(host.texts["api@1"])


async def test_a_full_disk_is_a_report(host: Host) -> None:
    with small_disk(host.folder / "disk") as disk:
        config = disk / "config.kdl"
        config.write_text(host.texts["api@1"])
        host.configure(config=config)
        filler = fill(disk)

        *reports, _ = lines(await host.apply("api@2", "--order", "d-1"))
        filler.unlink()
        left = [each.name for each in disk.iterdir()]

        assert reports[-1]["state"] == "FAILED"
        assert "no space left on device" in reports[-1]["message"]
        assert config.read_text() == host.texts["api@1"]
        assert left == ["config.kdl"]


async def test_a_disk_that_fills_up_after_the_write_stops_no_restore(host: Host) -> None:
    with small_disk(host.folder / "disk") as disk:
        config = disk / "config.kdl"
        config.write_text(host.texts["api@1"])
        host.file.unlink()
        host.file.symlink_to(config)
        fill_and_reload = f"cat /dev/zero > {disk}/filler; kill -HUP {host.proxy.pid}"
        health = {"attempts": 2, "interval": "100ms", "timeout": "30s"}
        host.configure(config=config, reload={"command": ["sh", "-c", fill_and_reload]}, health=health)

        *reports, running = lines(await host.apply("api@3", "--order", "d-1"))

        assert config.read_text() == host.texts["api@1"]
        assert (disk / "filler").stat().st_size > 0
    assert reports[-1]["message"] == "health check failed after 2 attempts"
    assert running["hash"] == content_hash(host.texts["api@1"])
    await host.until_serving("v1")


async def test_a_read_only_folder_is_a_report(host: Host) -> None:
    with small_disk(host.folder / "disk") as disk:
        config = disk / "config.kdl"
        config.write_text(host.texts["api@1"])
        host.configure(config=config)
        with read_only(disk):
            *reports, running = lines(await host.apply("api@2", "--order", "d-1"))

    assert reports[-1]["state"] == "FAILED"
    assert "read-only file system" in reports[-1]["message"]
    assert "read-only file system" in running["message"]


async def test_a_state_that_cannot_be_saved_is_a_report(host: Host) -> None:
    with small_disk(host.folder / "disk") as disk:
        host.configure(state=disk / "state")
        (disk / "state").mkdir()
        fill(disk)

        *reports, running = lines(await host.apply("api@2", "--order", "d-1"))

    assert reports[-1]["state"] == "FAILED"
    assert "no space left on device" in reports[-1]["message"]
    assert "no space left on device" in running["message"]
    assert host.file.read_text() == host.texts["api@1"]


async def test_a_file_changed_by_hand_is_reported_and_left(host: Host) -> None:
    host.file.write_text(host.texts["api@2"])

    (running,) = lines(await host.apply("api@1", "--offline"))

    assert host.file.read_text() == host.texts["api@2"]
    assert running["version"] == "api@1"
    assert running["hash"] == content_hash(host.texts["api@2"])
    assert running["message"].startswith(f"{host.file} is not api@1 since 20")
    assert 'routes "v1"' in running["message"]


async def test_the_last_good_version_is_put_back_without_a_hub(host: Host) -> None:
    host.file.unlink()

    (running,) = lines(await host.apply("api@1", "--offline"))

    assert host.file.read_text() == host.texts["api@1"]
    assert (running["version"], running["message"]) == ("api@1", "")
