"""What is logged, and how: shared by every service."""

from __future__ import annotations

import msgspec

from sentinel.runtime.log import LogFormat, LogLevel


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged, and how."""

    level: LogLevel = LogLevel.INFO
    """The least important event that is still logged: `debug`, `info`, `warning` or `error`."""

    format: LogFormat | None = None
    """`json`, one object a line, or `console`, for people. Unset: `console` on a terminal, otherwise `json`."""
