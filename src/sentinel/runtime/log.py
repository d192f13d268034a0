"""Logging with keyword events, and what a service says about itself.

    log = get_logger("pulse")
    log.info("cycle.done", fetched=40, published=3)

An event is a short constant, what varies goes into fields; so a log can be queried, and no message is ever
pieced together from values. It rests on the standard library's logging, so that the records of the libraries
we use pass through the same formatter and the same redaction as our own.

Lines are written synchronously. A queue and a thread in between would only move the wait, lose lines in a
crash, and grow without bound behind a reader that has stopped reading.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from sentinel.runtime.log_format import ConsoleFormatter, JsonFormatter, describe
from sentinel.runtime.redaction import Redactor
from sentinel.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = [
    "Log",
    "LogFormat",
    "LogLevel",
    "Logging",
    "build_info",
    "configure_logging",
    "describe",
    "flush_logs",
    "get_logger",
    "handle_loop_exception",
]

_ROOT = "sentinel"
_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


class LogLevel(StrEnum):
    """What is worth writing."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """As the standard library counts."""
        return int(logging.getLevelNamesMapping()[self.value.upper()])


class LogFormat(StrEnum):
    """How it is written."""

    JSON = "json"
    CONSOLE = "console"


class Log:
    """Writes events of one component. A call below the level costs no more than the call itself."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    @property
    def is_debug(self) -> bool:
        """Whether debug events are written; asked where even gathering their fields would cost."""
        return self._logger.isEnabledFor(_DEBUG)

    def bind(self, **fields: object) -> Log:
        """The same log with fields that go along with every event."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(_DEBUG):
            self._write(_DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(_INFO):
            self._write(_INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(_WARNING):
            self._write(_WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Something expected went wrong: `error=` is rendered in one line, without a traceback."""
        if self._logger.isEnabledFor(_ERROR):
            self._write(_ERROR, event, fields)

    def unexpected(self, event: str, /, *, error: BaseException, **fields: object) -> None:
        """Something unexpected went wrong: with the traceback, for whoever has to mend it."""
        if self._logger.isEnabledFor(_ERROR):
            self._write(_ERROR, event, {**fields, "error": error}, error)

    def _write(
        self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None
    ) -> None:
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        record = logging.LogRecord(self._logger.name, level, "", 0, event, None, exc_info)
        record.fields = {**self._fields, **fields} if self._fields else fields
        self._logger.handle(record)


def get_logger(name: str) -> Log:
    """The log of a component; its records are named `sentinel.<name>`."""
    return Log(logging.getLogger(f"{_ROOT}.{name}"), {})


class Logging:
    """Logging as `configure_logging` set it up, until `restore`."""

    def __init__(self, level: LogLevel, handler: logging.Handler, redactor: Redactor) -> None:
        self.redactor = redactor
        """Told of secrets that become known later; also used for what leaves by other ways than the log."""
        self._handler = handler
        self._root, self._ours = logging.getLogger(), logging.getLogger(_ROOT)
        self._levels = (self._root.level, self._ours.level)
        self._hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        self._log = get_logger("process")

        self._ours.setLevel(level.number)
        # Libraries talk to their developers; below a warning only whoever debugs wants to listen.
        self._root.setLevel(level.number if level is LogLevel.DEBUG else max(level.number, _WARNING))
        self._root.addHandler(handler)
        logging.captureWarnings(True)
        sys.excepthook = self._on_uncaught
        threading.excepthook = self._on_uncaught_in_thread
        sys.unraisablehook = self._on_unraisable

    def restore(self) -> None:
        """Puts everything back as it was found; a process that is about to end need not bother."""
        self._root.removeHandler(self._handler)
        self._root.setLevel(self._levels[0])
        self._ours.setLevel(self._levels[1])
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._hooks

    def _on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        self._log.unexpected("process.unhandled", error=error.with_traceback(trace))

    def _on_uncaught_in_thread(self, failure: threading.ExceptHookArgs) -> None:
        if failure.exc_value is not None and not isinstance(failure.exc_value, SystemExit):
            thread = failure.thread.name if failure.thread else ""
            self._log.unexpected("process.unhandled", error=failure.exc_value, thread=thread)

    def _on_unraisable(self, failure: sys.UnraisableHookArgs) -> None:
        if failure.exc_value is not None:
            self._log.unexpected("process.unraisable", error=failure.exc_value)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes a line at a time, and says nothing of a record that cannot be written: it may hold a secret."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the standard library's name
        pass


def configure_logging(
    level: str = LogLevel.INFO,
    format: str | None = None,  # noqa: A002  # the setting's own name
    *,
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Logging:
    """Sends every record, ours and the libraries', to `stream` (stderr), one line each, without secrets.

    Without a `format` it is `console` on a terminal and `json` elsewhere. Exceptions that nobody caught, and
    Python's warnings, become records too.
    """
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    is_terminal = stream.isatty()
    redactor = Redactor(secrets)
    formatter: logging.Formatter
    if LogFormat(format or (LogFormat.CONSOLE if is_terminal else LogFormat.JSON)) is LogFormat.CONSOLE:
        is_plain = "NO_COLOR" in environ or environ.get("TERM") == "dumb"
        formatter = ConsoleFormatter(redactor, colour=is_terminal and not is_plain)
    else:
        formatter = JsonFormatter(redactor)
    handler = _Handler(stream)
    handler.setFormatter(formatter)
    return Logging(LogLevel(level), handler, redactor)


def flush_logs() -> None:
    """Makes sure that what was logged has left the process; for the moment before it ends abruptly."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An event loop's exception handler that renders what nobody awaited as a record like any other."""
    log = get_logger("process")
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.unexpected("process.unhandled", error=error, message=context.get("message"))
    else:
        log.error("process.unhandled", message=context.get("message"))


def build_info(registry: CollectorRegistry, component: str) -> None:
    """Registers `hyperfleet_sentinel_build_info{version,component} 1`."""
    from prometheus_client import Info  # commands without metrics do not pay for it

    info = Info("hyperfleet_sentinel_build", "What is running here.", registry=registry)
    info.info({"version": __version__, "component": component})
