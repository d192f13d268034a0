"""A proxy in memory, for tests of what an agent does with it.

It reads its file when it is told to, as a real one does: an invalid text leaves the old one running, and nothing
tells the sender of the signal.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sentinel.ports.proxy_control import ConfigFile, ProxyFailure


class MemoryProxy:
    """A verified fake of `ports.proxy_control.ProxyControl`."""

    def __init__(self, text: str | None = None, *, can_restart: bool = False) -> None:
        self.text = text
        """The file."""
        self.running = text
        """What the proxy runs."""
        self.copy: str | None = None
        self.modified: datetime | None = None
        self.pid: int | None = 1000
        """None: it does not run."""
        self.calls: list[str] = []
        self.stop_timeout: timedelta | None = None
        """How long the last `stop` would have waited."""
        self.refuses: dict[str, ProxyFailure] = {}
        """Why a call, such as `test` or `reload`, fails, by its name."""
        self.accepts: Callable[[str], str] = lambda text: ""
        """Says why the proxy does not accept a text."""
        self.is_healthy: Callable[[str | None], bool] = lambda running: True
        """Whether the proxy is healthy with what it runs."""
        self._can_restart = can_restart

    @property
    def path(self) -> str:
        return "/etc/sentinel/config.kdl"

    @property
    def can_restart(self) -> bool:
        return self._can_restart

    async def read(self) -> ConfigFile:
        return ConfigFile(text=self.text, modified=self.modified)

    async def test(self, text: str) -> None:
        self._call("test")
        reason = self.accepts(text)
        if reason:
            raise ProxyFailure(f"the proxy does not accept it: {reason}", reason)

    async def write(self, text: str) -> None:
        self._call("write")
        self.copy = self.text if self.text is not None else self.copy
        self.text = text

    async def read_copy(self) -> str | None:
        return self.copy

    async def restore(self, text: str | None) -> None:
        self._call("restore")
        self.text = text

    async def reload(self) -> None:
        self._call("reload")
        if self.pid is None:
            raise ProxyFailure("the proxy does not run")
        self._read_again()

    async def restart(self) -> None:
        self._call("restart")
        self.pid = (self.pid or 1000) + 1
        self._read_again()

    async def check_health(self) -> None:
        self._call("check_health")
        if self.pid is None:
            raise ProxyFailure("the proxy does not run")
        if not self.is_healthy(self.running):
            raise ProxyFailure("http://127.0.0.1:8088/health: responded 503")

    async def process_id(self) -> int | None:
        return self.pid

    async def stop(self, timeout: timedelta) -> None:
        self._call("stop")
        self.stop_timeout = timeout
        self.pid = None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.refuses:
            raise self.refuses[name]

    def _read_again(self) -> None:
        if self.text is not None and not self.accepts(self.text):
            self.running = self.text
