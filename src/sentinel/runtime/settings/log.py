"""Logging settings, which all services share."""

from __future__ import annotations

import msgspec

from sentinel.runtime.log import LogFormat, LogLevel


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The level and format of the log."""

    level: LogLevel = LogLevel.INFO
    """The lowest level that is logged: `debug`, `info`, `warning` or `error`."""

    format: LogFormat | None = None
    """`json`, one object per line, or `console`, for people. Default: `console` on a terminal, otherwise
    `json`."""
