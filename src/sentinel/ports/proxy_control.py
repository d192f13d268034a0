"""The proxy that an agent controls: its file, its process and its health."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

import msgspec


class ProxyFailure(Exception):
    """Something that was asked of the proxy, or of its file, did not work. The text says why, for people."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        """What the proxy said, bounded."""


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file that the proxy reads, as it is."""

    text: str | None = None
    """None if there is none, or it cannot be read."""
    modified: datetime | None = None
    problem: str = ""
    """Why it cannot be read. Empty if it is read, or missing."""


class ProxyControl(Protocol):
    """Controls one proxy. Each method can be repeated, and each ends after a bounded time."""

    @property
    def path(self) -> str:
        """The path of the file, for messages."""

    @property
    def can_restart(self) -> bool:
        """Whether `restart` does something."""

    async def read(self) -> ConfigFile:
        """Read the file."""

    async def test(self, text: str) -> None:
        """Let the proxy say whether it accepts a text. The file stays as it is. Raises `ProxyFailure`."""

    async def write(self, text: str) -> None:
        """Keep a copy of the file and replace it, atomically and durably. Raises `ProxyFailure`; then the file is
        unchanged."""

    async def read_copy(self) -> str | None:
        """Return the copy that `write` kept; None if there is none, or it cannot be read."""

    async def restore(self, text: str | None) -> None:
        """Replace the file, or remove it. The copy stays, unless it has to become the file because there is no
        space for another one. Raises `ProxyFailure`."""

    async def reload(self) -> None:
        """Tell the proxy to read the file again. Raises `ProxyFailure` if it cannot be told."""

    async def restart(self) -> None:
        """Restart the proxy. Raises `ProxyFailure`."""

    async def check_health(self) -> None:
        """Check once whether the proxy runs and is healthy. Raises `ProxyFailure` if not."""

    async def process_id(self) -> int | None:
        """Return the id of the proxy's process; None if it does not run, or that is unknown."""

    async def stop(self, timeout: timedelta) -> None:
        """Stop the proxy. Raises `ProxyFailure`, also if it has not ended within `timeout`."""
