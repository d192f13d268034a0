"""Structured logging: an event name and fields.

    log = get_logger("pulse")
    log.info("cycle.done", fetched=40, published=3)

An event is a short constant. Everything that varies is a field, so logs can be queried. This is built on the
standard library's logging, so records of libraries get the same format and redaction as ours.

Lines are written synchronously. A queue and a thread would lose lines in a crash, and grow without bound if the
reader of the log stops. Where many events of one kind happen at once, `info_each` writes their lines together, at
a fifth of the cost of as many calls of `info`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Any, TextIO

from sentinel.runtime.log_format import ConsoleFormatter, JsonFormatter, LogBatch, RecordFormatter
from sentinel.runtime.secrets import Redactor

_ROOT = "sentinel"
_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level in the standard library."""
        return int(logging.getLevelNamesMapping()[self.value.upper()])


class LogFormat(StrEnum):
    """The format of log lines."""

    JSON = "json"
    CONSOLE = "console"


class Log:
    """Logs events of one component. A call below the level costs only the call."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    @property
    def is_debug(self) -> bool:
        """Whether debug events are logged. For callers whose fields are expensive to compute."""
        return self._logger.isEnabledFor(_DEBUG)

    def bind(self, **fields: object) -> Log:
        """Return a log that adds these fields to every event."""
        return Log(self._logger, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(_DEBUG):
            self._write(_DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(_INFO):
            self._write(_INFO, event, fields)

    def info_each(self, event: str, /, **columns: Sequence[object]) -> None:
        """Log the event once for each row of the columns, as that many calls of `info` would, in one write.

        Columns are sequences of equal length. All lines have the same time.
        """
        logger = self._logger
        if not logger.isEnabledFor(_INFO):
            return
        handlers = list(_handlers(logger))
        if logger.filters or not handlers:  # the standard library's business
            for row in zip(*columns.values(), strict=True):
                self._write(_INFO, event, dict(zip(columns, row, strict=True)))
            return
        batch = LogBatch(logger.name, _INFO, event, time.time(), self._fields, columns)
        for handler in handlers:
            if handler.level > _INFO:
                continue
            if isinstance(handler, _Handler) and not handler.filters:
                handler.write_batch(batch)
            else:
                for record in batch.records():
                    handler.handle(record)

    def warning(self, event: str, /, **fields: object) -> None:
        if self._logger.isEnabledFor(_WARNING):
            self._write(_WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log an expected failure: `error=` is rendered on one line, without a traceback."""
        if self._logger.isEnabledFor(_ERROR):
            self._write(_ERROR, event, fields)

    def exception(self, event: str, /, *, error: BaseException, **fields: object) -> None:
        """Log an unexpected failure with its traceback."""
        if self._logger.isEnabledFor(_ERROR):
            self._write(_ERROR, event, {**fields, "error": error}, error)

    def _write(
        self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None
    ) -> None:
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        record = logging.LogRecord(self._logger.name, level, "", 0, event, None, exc_info)
        record.fields = {**self._fields, **fields} if self._fields else fields
        self._logger.handle(record)


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of a logger and of its parents, as the standard library calls them."""
    current: logging.Logger | None = logger
    while current is not None:
        yield from current.handlers
        current = current.parent if current.propagate else None


def get_logger(name: str) -> Log:
    """Return the log of a component. Its records are named `sentinel.<name>`."""
    return Log(logging.getLogger(f"{_ROOT}.{name}"), {})


class Logging:
    """The process-wide logging set-up that `configure_logging` made, until `restore`."""

    def __init__(self, level: LogLevel, handler: logging.Handler, redactor: Redactor) -> None:
        self.redactor = redactor
        """Masks secrets in log lines. Add secrets that become known later; use it for other output as well."""
        self._handler = handler
        self._root, self._ours = logging.getLogger(), logging.getLogger(_ROOT)
        self._levels = (self._root.level, self._ours.level)
        self._hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        self._log = get_logger("process")

        self._ours.setLevel(level.number)
        # Libraries log details for their own developers, so their info events appear only at debug level.
        self._root.setLevel(level.number if level is LogLevel.DEBUG else max(level.number, _WARNING))
        self._root.addHandler(handler)
        logging.captureWarnings(True)
        sys.excepthook = self._on_uncaught
        threading.excepthook = self._on_uncaught_in_thread
        sys.unraisablehook = self._on_unraisable

    def restore(self) -> None:
        """Undo everything. A process that is about to exit need not call it."""
        self._root.removeHandler(self._handler)
        self._root.setLevel(self._levels[0])
        self._ours.setLevel(self._levels[1])
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._hooks

    def _on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        self._log.exception("process.unhandled", error=error.with_traceback(trace))

    def _on_uncaught_in_thread(self, failure: threading.ExceptHookArgs) -> None:
        if failure.exc_value is not None and not isinstance(failure.exc_value, SystemExit):
            thread = failure.thread.name if failure.thread else ""
            self._log.exception("process.unhandled", error=failure.exc_value, thread=thread)

    def _on_unraisable(self, failure: sys.UnraisableHookArgs) -> None:
        if failure.exc_value is not None:
            self._log.exception("process.unraisable", error=failure.exc_value)


class _Handler(logging.StreamHandler[TextIO]):
    """Drops records that cannot be written. The standard handler would print them, and they may hold a secret."""

    def __init__(self, stream: TextIO, formatter: RecordFormatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._batch_formatter = formatter

    def write_batch(self, batch: LogBatch) -> None:
        """Write the lines of a batch, and flush once."""
        text = self._batch_formatter.format_batch(batch)
        self.acquire()
        try:
            try:
                self.stream.write(text)
            except UnicodeError:
                # Nothing was written. The stream cannot encode one of the lines; that one alone is dropped.
                for line in text.split("\n")[:-1]:
                    with suppress(UnicodeError):
                        self.stream.write(f"{line}\n")
            self.flush()
        except Exception:  # noqa: S110  # as in handleError
            pass
        finally:
            self.release()

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
    """Write every record, ours and the libraries', to `stream` (stderr by default) with secrets masked.

    The default format is `console` on a terminal and `json` elsewhere. Uncaught exceptions and Python's warnings
    become records, too.
    """
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    is_terminal = stream.isatty()
    redactor = Redactor(secrets)
    formatter: RecordFormatter
    if LogFormat(format or (LogFormat.CONSOLE if is_terminal else LogFormat.JSON)) is LogFormat.CONSOLE:
        is_plain = "NO_COLOR" in environ or environ.get("TERM") == "dumb"
        formatter = ConsoleFormatter(redactor, color=is_terminal and not is_plain)
    else:
        formatter = JsonFormatter(redactor)
    return Logging(LogLevel(level), _Handler(stream, formatter), redactor)


def flush_logs() -> None:
    """Flush all handlers, before the process exits abruptly."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of a task or callback that was never retrieved. An event loop's exception handler."""
    log = get_logger("process")
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.exception("process.unhandled", error=error, message=context.get("message"))
    else:
        log.error("process.unhandled", message=context.get("message"))
