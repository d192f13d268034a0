"""Formats log records: one line of JSON for machines, or an aligned line for people.

A formatter never raises, because a log line must not end a service. Every value is redacted before the line is
formatted. Redacting the finished line would be wrong: a secret of digits would break the JSON around a number, and
quotes in a secret are escaped by then.
"""

from __future__ import annotations

import json
import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

import msgspec

from sentinel.core.times import timestamp
from sentinel.runtime.secret_text import MASK, is_secret_name
from sentinel.runtime.secrets import Redactor

Plain: TypeAlias = "None | bool | int | float | str | list[Plain] | dict[str, Plain]"

_RESERVED = ("time", "level", "logger", "event")
_MAX_DEPTH = 4
_MAX_TRACEBACK = 16_384
_MAX_TEXT = 16_384
"""The maximum length of one value: an error of a task may contain a whole file."""
_COLORS = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_is_secret_name = lru_cache(maxsize=1024)(is_secret_name)
"""Most names are those of fields in our code, which are few."""
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def describe(error: BaseException) -> str:
    """Describe an error in one line: its type and its text, and for a group those of each member."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    try:
        text = " ".join(str(error).split())
    except BaseException:  # its __str__ may raise anything
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class LogBatch(msgspec.Struct, frozen=True):
    """Many records of one event."""

    name: str
    level: int
    event: str
    created: float
    """The time of all records, in seconds since 1970."""
    fields: Mapping[str, object]
    """The fields that all records share."""
    columns: Mapping[str, Sequence[object]]
    """The other fields, each with its values; all of one length."""

    def records(self) -> Iterator[logging.LogRecord]:
        """Yield the records, for handlers that know nothing of batches."""
        for row in zip(*self.columns.values(), strict=True):
            record = logging.LogRecord(self.name, self.level, "", 0, self.event, None, None)
            record.fields = {**self.fields, **dict(zip(self.columns, row, strict=True))}
            yield record


class RecordFormatter(logging.Formatter, ABC):
    """Converts a record, ours or a library's, into plain redacted values."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    @abstractmethod
    def format_batch(self, batch: LogBatch) -> str:
        """Return the lines of all records, each with its line break."""

    def _event(self, record: logging.LogRecord) -> str:
        try:
            return self._redactor.redact(record.getMessage())
        except Exception as error:  # a library's arguments do not match its message
            return self._redactor.redact(f"{record.msg} (unformattable: {describe(error)})")

    def _fields(self, record: logging.LogRecord) -> dict[str, Plain]:
        fields: Mapping[str, object] = getattr(record, "fields", {})
        plain = self._shared_fields(fields)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and "error" not in plain:
            plain["error"] = self._plain(error)
        return plain

    def _shared_fields(self, fields: Mapping[str, object]) -> dict[str, Plain]:
        return {_field_name(name): self._named(name, value) for name, value in fields.items()}

    def _rows(self, batch: LogBatch) -> Iterator[dict[str, Plain]]:
        """Yield the plain fields of each record."""
        shared = self._shared_fields(batch.fields)
        names = [_field_name(name) for name in batch.columns]
        for values in zip(*map(self._plain_column, batch.columns.values()), strict=True):
            yield {**shared, **dict(zip(names, values, strict=True))}

    def _plain_column(self, values: Sequence[object]) -> Sequence[Plain]:
        texts = [value for value in values if type(value) is str]
        if len(texts) == len(values):
            return [_shortened(text) for text in self._redactor.redact_each(texts)]
        # The values of other columns are often the same object, such as a member of an enum.
        plain: dict[int, Plain] = {}
        for value in values:
            if id(value) not in plain:
                plain[id(value)] = self._plain(value)
        return [plain[id(value)] for value in values]

    def _traceback(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return ""
        try:
            text = "".join(traceback.format_exception(error)).rstrip()
        except Exception as unprintable:
            text = f"no traceback: {describe(unprintable)}"
        return self._redactor.redact(text)[-_MAX_TRACEBACK:]

    def _named(self, name: str, value: object, depth: int = 0) -> Plain:
        """Convert the value of a field or a key. A number under a telling name is a count, not a secret."""
        is_hidden = _is_secret_name(name) and not isinstance(value, int | float | None)
        return MASK if is_hidden else self._plain(value, depth)

    def _plain(self, value: object, depth: int = 0) -> Plain:
        # Most values are of these types. The other checks, one after another, cost a sixth of an access log line.
        if type(value) is str:
            return self._text(value)
        if type(value) is int or type(value) is float:
            return value
        try:
            return self._convert(value, depth)
        except BaseException:  # its __str__ may raise anything
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
        if depth < _MAX_DEPTH and isinstance(value, Mapping):
            return {
                self._redactor.redact(str(name)): self._named(str(name), inner, depth + 1)
                for name, inner in value.items()
            }
        if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
            items: Iterable[object] = value
            return [self._plain(inner, depth + 1) for inner in items]
        return self._text(str(value))

    def _text(self, text: str) -> str:
        """Redact, then shorten: half of a secret would not be recognized."""
        return _shortened(self._redactor.redact(text))


class JsonFormatter(RecordFormatter):
    """One JSON object per line: `time`, `level`, `logger`, `event`, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = _head(record.created, record.levelname, record.name, self._event(record))
        line.update(self._fields(record))
        if trace := self._traceback(record):
            line["traceback"] = trace
        return _encode_line(line)

    def format_batch(self, batch: LogBatch) -> str:
        event = self._redactor.redact(batch.event)
        head = _head(batch.created, logging.getLevelName(batch.level), batch.name, event)
        lines = [{**head, **fields} for fields in self._rows(batch)]
        try:
            return _encoder.encode_lines(lines).decode()
        except _UNENCODABLE:
            return "".join(f"{_encode_line(line)}\n" for line in lines)


_encoder = msgspec.json.Encoder()
_UNENCODABLE = (OverflowError, UnicodeError)
"""Integers beyond 64 bits, lone surrogates."""


def _head(created: float, level: str, name: str, event: str) -> dict[str, Plain]:
    time = datetime.fromtimestamp(created, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    return {"time": time, "level": level.lower(), "logger": name, "event": event}


def _encode_line(line: dict[str, Plain]) -> str:
    try:
        return _encoder.encode(line).decode()
    except _UNENCODABLE:
        return json.dumps(line)


class ConsoleFormatter(RecordFormatter):
    """An aligned line for people. Ambiguous and unprintable values are quoted."""

    def __init__(self, redactor: Redactor, *, color: bool) -> None:
        super().__init__(redactor)
        self._color = color

    def format(self, record: logging.LogRecord) -> str:
        head = self._head(record.created, record.levelname, record.name, self._event(record))
        line = _console_line(head, self._fields(record))
        trace = self._traceback(record)
        return "\n".join((line, *(f"  {_printable(row)}" for row in trace.split("\n")))) if trace else line

    def format_batch(self, batch: LogBatch) -> str:
        event = self._redactor.redact(batch.event)
        head = self._head(batch.created, logging.getLevelName(batch.level), batch.name, event)
        return "".join(f"{_console_line(head, fields)}\n" for fields in self._rows(batch))

    def _head(self, created: float, level: str, name: str, event: str) -> str:
        time = datetime.fromtimestamp(created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level, name, event = level.lower(), name.removeprefix("sentinel."), _printable(event)
        if not self._color:
            return f"{time} {level:<7} {name:<10} {event}"
        tint = _COLORS.get(level, "")
        return f"{_DIM}{time}{_RESET} {tint}{level:<7}{_RESET} {_DIM}{name:<10}{_RESET} {_BOLD}{event}{_RESET}"


def _console_line(head: str, fields: Mapping[str, Plain]) -> str:
    return " ".join((head, *(f"{field}={_format_value(value)}" for field, value in fields.items())))


def _field_name(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _format_value(value: Plain) -> str:
    if isinstance(value, str):
        is_bare = value.isprintable() and value and not any(mark in value for mark in " =\"'")
        return value if is_bare else repr(value)
    return f"{value:.6g}" if isinstance(value, float) else _printable(str(value))


def _printable(text: str) -> str:
    """Escape control characters."""
    return text if text.isprintable() else repr(text)[1:-1]
