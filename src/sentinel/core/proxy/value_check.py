"""Compares a value with its type, and says what to write instead."""

from __future__ import annotations

import re
from typing import Final

from sentinel.core import kdl
from sentinel.core.proxy.findings import Code, Findings, shown
from sentinel.core.proxy.schema import Entry, Row
from sentinel.core.proxy.schema.types import (
    Address,
    Boolean,
    Choice,
    Either,
    Fault,
    HostPort,
    Integer,
    Number,
    Pattern,
    Regex,
    Text,
    Url,
    ValueType,
    is_scheme,
)

_WORDS: Final = {
    "true": "#true",
    "yes": "#true",
    "on": "#true",
    "false": "#false",
    "no": "#false",
    "off": "#false",
}
_ANY_HOST: Final = "0.0.0.0"  # noqa: S104 - an example for people who write :8080
_THIS_HOST: Final = "127.0.0.1"
_QUANTITY: Final = re.compile(r"(-?[0-9]{1,12}) ?([a-zA-Z]*)")
_FACTORS: Final = {
    "": {"": 1},
    "seconds": {"": 1, "s": 1, "sec": 1, "secs": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400},
    "milliseconds": {"": 1, "ms": 1, "s": 1000, "sec": 1000, "secs": 1000, "m": 60_000, "min": 60_000},
    "bytes": {
        "": 1,
        "b": 1,
        "k": 1 << 10,
        "kb": 1 << 10,
        "m": 1 << 20,
        "mb": 1 << 20,
        "g": 1 << 30,
        "gb": 1 << 30,
    },
}
"""What people write after a number, by the unit that the proxy counts in."""


def check_value(value: kdl.Value, entry: Entry, row: Row, findings: Findings) -> bool:
    """Report what is wrong with a value. Returns whether it is good."""
    fault = entry.type.fault(value.value)
    if fault is None:
        return _is_accepted(value, row, findings)
    fallback = entry.type.fallback if isinstance(entry.type, Choice) else None
    what = f"expected {entry.type.expected}{_named(entry, row)}, got {shown(value.value)}"
    if fault is Fault.CHOICE and fallback is not None:
        message = f"{what}; the proxy uses {fallback} instead"
        findings.warning(Code.IGNORED_VALUE, value, message, _suggest(value.value, entry.type, findings))
        return False
    if isinstance(entry.type, Regex) and isinstance(value.value, str) and value.value:
        what += f": {entry.type.reason(value.value)}"
    if fault is Fault.PORT:
        what = f"expected a port from 1 to 65535{_named(entry, row)}, got {shown(value.value)}"
    suggestion = _suggest(value.value, entry.type, findings)
    if suggestion is None and (value.value is None or isinstance(value.value, bool)):
        suggestion = f"write {entry.type.expected}"
    findings.error(fault, value, what, suggestion)
    return False


def _is_accepted(value: kdl.Value, row: Row, findings: Findings) -> bool:
    """Whether the proxy accepts a value that it knows."""
    if row.only is None or str(value.value).lower() == row.only:
        return True
    message = f"expected {row.only} for {row.name}, got {shown(value.value)}, which the proxy refuses"
    findings.error(Code.NOT_SUPPORTED, value, message, f"write {row.only}")
    return False


def _named(entry: Entry, row: Row) -> str:
    return f" for {row.name}" if not entry.name or entry.name == row.name else f" as {entry.name} of {row.name}"


def _suggest(value: kdl.Scalar, type_: ValueType, findings: Findings) -> str | None:
    """Return what to write instead of a value."""
    match type_:
        case Choice(values=values, fallback=_) if isinstance(value, str):
            nearest = findings.nearest(value, values)
            return None if nearest is None else f"write {shown(nearest)}"
        case Either(types=types):
            of_kind = [each for each in types if each.fault(value) is not Fault.TYPE]
            found = (_suggest(value, each, findings) for each in (of_kind if _is_number(value) else types))
            return next((suggestion for suggestion in found if suggestion is not None), None)
        case Boolean():
            word = _WORDS.get(str(value).lower().removeprefix("#"))
            return None if word is None else f"write {word}"
        case Integer() | Number():
            return _suggest_number(value, type_)
        case Address() | HostPort():
            return _suggest_address(value, type_)
        case Text() | Choice() | Pattern() | Regex() | Url() if _is_number(value):
            if type_.fault(str(value)) is None:
                return f"write {kdl.print_value(kdl.Value(str(value)))}"
            return f"write {shown(type_.example)}"
        case Url():
            return f"write {shown(type_.example)}"
    return None


def _suggest_number(value: kdl.Scalar, type_: Integer | Number) -> str | None:
    found = _QUANTITY.fullmatch(kdl.print_value(kdl.Value(value)).strip('"').removesuffix(".0"))
    if found is None:
        return None
    factor = _FACTORS[type_.unit if isinstance(type_, Integer) else ""].get(found[2].lower())
    if factor is None or type_.fault(int(found[1]) * factor) is not None:
        return None
    return f"write {int(found[1]) * factor}"


def _suggest_address(value: kdl.Scalar, type_: Address | HostPort) -> str | None:
    if isinstance(value, str) and is_scheme(value):
        value = value.partition("://")[2].partition("/")[0]
    host = _ANY_HOST if isinstance(type_, Address) else _THIS_HOST
    text = str(value)
    meant = [text, f"{host}:{text.removeprefix(':')}", text.replace("localhost", _THIS_HOST, 1)]
    written = next((each for each in meant if type_.fault(each) is None), None)
    return f"write an address such as {shown(type_.example)}" if written is None else f"write {shown(written)}"


def _is_number(value: kdl.Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
