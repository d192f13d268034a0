"""The host of an agent: its proxy and its disk, which outlive the agent's process, and take time.

Without that time, an agent could only be killed between two messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from sentinel.core.agent.state import AgentState
from sentinel.ports.proxy_control import ConfigFile, ProxyFailure
from sentinel.testing.proxy_control import MemoryProxy
from sentinel.testing.state_dir import MemoryStateDir
from tests.sim.agents.configurations import UNMANAGED, Defect

NO_SPACE: Final = "no space left on device"
NOT_RUNNING: Final = "the proxy does not run"
_LONGEST: Final = 0.4
"""Seconds that a call may take."""


class Disk:
    """Whether writes fail at present."""

    def __init__(self) -> None:
        self.is_full = False


class HostProxy(MemoryProxy):
    """A proxy that fails with some versions."""

    def __init__(
        self, *, defects: Mapping[str, Defect], disk: Disk, random: Random, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called when the file, or what runs, may be another one."""
        super().__init__(UNMANAGED, can_restart=random.random() < 0.5)
        self.defects = defects
        self.accepts = lambda text: "planned" if defects.get(text) is Defect.REFUSED else ""
        self.is_healthy = lambda text: defects.get(text or "") is not Defect.UNHEALTHY
        self._disk = disk
        self._random = random
        self._on_change = on_change
        self._boots = 0

    async def read(self) -> ConfigFile:
        await self._take_time()
        return await super().read()

    async def test(self, text: str) -> None:
        await self._take_time()
        await super().test(text)
        await self._take_time()

    async def write(self, text: str) -> None:
        await self._take_time()
        if self._disk.is_full:
            raise ProxyFailure(f"{self.path} cannot be written: {NO_SPACE}")
        await super().write(text)
        await self._changed()

    async def restore(self, text: str | None) -> None:
        await self._take_time()
        await super().restore(text)
        await self._changed()

    async def reload(self) -> None:
        await self._take_time()
        await super().reload()
        await self._changed()

    async def restart(self) -> None:
        await self._take_time()
        await super().restart()
        await self._changed()

    async def check_health(self) -> None:
        await self._take_time()
        await super().check_health()
        await self._take_time()

    def boot(self) -> None:
        """Start the proxy again, with what is in its file."""
        self._boots += 1
        self.pid = 1000 * (1 + self._boots)  # more than restarts count up to
        self.running = self.text
        self._on_change()

    async def _changed(self) -> None:
        self._on_change()
        await self._take_time()

    async def _take_time(self) -> None:
        await asyncio.sleep(_LONGEST * self._random.random() ** 4)


class HostStateDir(MemoryStateDir):
    """A state directory on a disk."""

    def __init__(self, name: str, *, disk: Disk, random: Random) -> None:
        super().__init__(name)
        self._disk = disk
        self._random = random

    async def save(self, state: AgentState) -> None:
        await self._take_time()
        self.is_full = self._disk.is_full
        await super().save(state)
        await self._take_time()

    async def save_applied(self, text: str) -> None:
        await self._take_time()
        self.is_full = self._disk.is_full
        await super().save_applied(text)
        await self._take_time()

    async def _take_time(self) -> None:
        await asyncio.sleep(_LONGEST * self._random.random() ** 4)
