"""How a log record looks: one line of JSON for machines, an aligned line for people.

A formatter never raises, whatever it is handed, because a log line must not end a service; and every piece of
text passes the redactor before it is laid out. Redacting the finished line instead would be simpler and wrong:
a secret of digits would break the JSON around a number, and a quote within a secret is escaped by then.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeAlias

import msgspec

from sentinel.core.times import timestamp
from sentinel.runtime.redaction import Redactor

Plain: TypeAlias = "None | bool | int | float | str | list[Plain] | dict[str, Plain]"

_RESERVED = ("time", "level", "logger", "event")
_DEEPEST = 4
_LONGEST_TRACEBACK = 16_384
_LONGEST_TEXT = 16_384
"""Of one value: what a task raises may quote a whole file."""
_COLOURS = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def describe(error: BaseException) -> str:
    """An error in one line: its kind and its text, and for a group those of each error within."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    try:
        text = " ".join(str(error).split())
    except BaseException:  # an error whose text cannot be had, whatever having it raises, is still one
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _RecordFormatter(logging.Formatter):
    """What both formats share: reading a record, ours or a library's, into plain values free of secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def _event(self, record: logging.LogRecord) -> str:
        try:
            return self._redactor.redact(record.getMessage())
        except Exception as error:  # a library's arguments that do not fit its own message
            return self._redactor.redact(f"{record.msg} (unformattable: {describe(error)})")

    def _fields(self, record: logging.LogRecord) -> dict[str, Plain]:
        fields: Mapping[str, object] = getattr(record, "fields", {})
        plain = {f"{name}_" if name in _RESERVED else name: self._plain(value) for name, value in fields.items()}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and "error" not in plain:
            plain["error"] = self._plain(error)
        return plain

    def _traceback(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return ""
        try:
            text = "".join(traceback.format_exception(error)).rstrip()
        except Exception as unprintable:
            text = f"no traceback: {describe(unprintable)}"
        return self._redactor.redact(text)[-_LONGEST_TRACEBACK:]

    def _plain(self, value: object, depth: int = 0) -> Plain:
        try:
            return self._convert(value, depth)
        except BaseException:  # a value that cannot even be printed, whatever printing it raises
            return f"<unprintable {type(value).__name__}>"

    def _convert(self, value: object, depth: int) -> Plain:
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, datetime) and value.tzinfo is not None:
            return timestamp(value)
        if isinstance(value, BaseException):
            return self._text(describe(value))
        if depth < _DEEPEST and isinstance(value, Mapping):
            return {
                self._redactor.redact(str(name)): self._plain(inner, depth + 1) for name, inner in value.items()
            }
        if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
            items: Iterable[object] = value
            return [self._plain(inner, depth + 1) for inner in items]
        return self._text(str(value))

    def _text(self, text: str) -> str:
        """Cut only when it is free of secrets, of which half would not be recognised."""
        text = self._redactor.redact(text)
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


class JsonFormatter(_RecordFormatter):
    """One JSON object a line: `time`, `level`, `logger`, `event`, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Plain] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": self._event(record),
        }
        line.update(self._fields(record))
        if trace := self._traceback(record):
            line["traceback"] = trace
        try:
            return msgspec.json.encode(line).decode()
        except (OverflowError, UnicodeError):  # integers past 64 bits, halves of surrogate pairs
            return json.dumps(line)


class ConsoleFormatter(_RecordFormatter):
    """An aligned line for people; values that would confuse a reader or a terminal are quoted."""

    def __init__(self, redactor: Redactor, *, colour: bool) -> None:
        super().__init__(redactor)
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        name = record.name.removeprefix("sentinel.")
        event = _visible(self._event(record))
        fields = [f"{field}={_shown(value)}" for field, value in self._fields(record).items()]
        if self._colour:
            tint = _COLOURS.get(level, "")
            line = f"{_DIM}{time}{_RESET} {tint}{level:<7}{_RESET} {_DIM}{name:<10}{_RESET} {_BOLD}{event}{_RESET}"
        else:
            line = f"{time} {level:<7} {name:<10} {event}"
        line = " ".join((line, *fields))
        trace = self._traceback(record)
        return "\n".join((line, *(f"  {_visible(row)}" for row in trace.split("\n")))) if trace else line


def _shown(value: Plain) -> str:
    if isinstance(value, str):
        is_bare = value.isprintable() and value and not any(mark in value for mark in " =\"'")
        return value if is_bare else repr(value)
    return f"{value:.6g}" if isinstance(value, float) else _visible(str(value))


def _visible(text: str) -> str:
    """The text without anything a terminal would act on."""
    return text if text.isprintable() else repr(text)[1:-1]
