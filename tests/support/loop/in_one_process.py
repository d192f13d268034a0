"""The loop in one process: `sentinel up` with the in-memory broker and the test's adapters.

Its parts cannot be killed separately: killing one kills all, and the tests check that all continue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.loop.resource_loop import ADAPTERS, SETTINGS, ResourceLoop
from tests.support.processes.service import ServiceProcess


class UpLoop(ResourceLoop):
    """Consecutive `sentinel up` processes on the same data."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        super().__init__(directory, settings)
        self._adapters: Collection[str] = ()
        """The adapters of the current process."""

    def pulse(self, plural: str) -> ServiceProcess:
        return self.processes[-1]

    async def start_missing(self) -> None:
        if set(self._adapters) != set(ADAPTERS):
            await self.kill_all()
        if not (self.processes and self.processes[-1].is_running):
            await self._start(ADAPTERS)

    async def kill_all(self) -> None:
        if self.processes and self.processes[-1].is_running:
            await self.processes[-1].__aexit__(None, None, None)

    async def kill_adapter(self, name: str) -> None:
        await self.kill_all()

    async def start_adapter(self, name: str) -> None:
        await self.start_missing()

    @asynccontextmanager
    async def without_adapter(self, name: str) -> AsyncIterator[None]:
        await self._stop()
        await self._start(set(ADAPTERS) - {name})
        yield
        await self._stop()
        await self.start_missing()

    @asynccontextmanager
    async def without_api(self) -> AsyncIterator[None]:
        await self.kill_all()
        yield
        await self.start_missing()

    async def _stop(self) -> None:
        assert await self.processes[-1].stop() == 0
        await self.processes[-1].__aexit__(None, None, None)

    async def _start(self, adapters: Collection[str]) -> None:
        command = (
            "up",
            f"--data-dir={self.directory / 'data'}",
            f"--listen={urlsplit(self.url).netloc}",
            "--listen-grpc=127.0.0.1:0",
            f"--kinds-file={self.kinds_file()}",
            *(f"--adapter={self.adapter_file(name)}" for name in sorted(adapters)),
        )
        self._adapters = adapters
        process = ServiceProcess(command, environ=self.environ)
        self.processes.append(await process.__aenter__())
        await process.until_event("service.started")
