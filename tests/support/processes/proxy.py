"""`sentinel proxy` as a process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes.service import Line, ServiceProcess
from tools.services.server import free_port


class ProxyProcess(ServiceProcess):
    """The small proxy with a file that can be replaced. `{port}` in its text is the port of the listener."""

    def __init__(self, directory: Path, text: str, *, arguments: Sequence[str] = ()) -> None:
        self.file = directory / "proxy.kdl"
        self.port = free_port()
        self.write(text)
        super().__init__(["proxy", "-c", str(self.file), *arguments], environ={})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self, text: str) -> None:
        """Replace the file, as an agent does: at once."""
        draft = self.file.with_suffix(".new")
        draft.write_text(text.replace("{port}", str(self.port)))
        draft.replace(self.file)

    async def until_started(self) -> Line:
        return await self.until_event("service.started")

    async def reload(self, text: str, *, expecting: str = "service.reloaded") -> Line:
        """Replace the file, send SIGHUP, and wait for the event."""
        since = len(self.lines)
        self.write(text)
        self.send_signal(signal.SIGHUP)
        return await self.until_event(expecting, since=since)
