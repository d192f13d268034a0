"""What a value may be: the types of the schema.

A type is data that judges a scalar. `fault` returns None for a good value, or what is wrong with it; whether that
is an error or a warning is the validator's business. `expected` completes the sentence "expected …, got …".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from sentinel.core.kdl import Scalar
from sentinel.core.proxy import path_pattern

MAX_INTEGER: Final = 2**63 - 1
MAX_PORT: Final = 65_535

_HOST: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_URL: Final = re.compile(
    r"([a-z][a-z0-9+.-]*)://(?:[^/?#@\s]*@)?(\[[0-9A-Fa-f:.]+\]|[^/?#@:\s]+)(?::([0-9]{1,9}))?(?:[/?#]\S*)?"
)
_DURATION: Final = re.compile(
    r"[0-9]+(?:\.[0-9]+)? ?(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Fault(StrEnum):
    """How a value can be wrong."""

    TYPE = "wrong-type"
    RANGE = "out-of-range"
    CHOICE = "unknown-value"
    ADDRESS = "bad-address"
    PORT = "bad-port"
    FORM = "bad-value"


class Text(msgspec.Struct, frozen=True):
    """Any string."""

    expected: str = "a string"
    example: str = "…"
    may_be_empty: bool = False

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, str):
            return Fault.TYPE
        return None if value or self.may_be_empty else Fault.FORM


class Pattern(msgspec.Struct, frozen=True):
    """A string of a certain form."""

    expected: str
    form: str
    """A regular expression for the whole string."""
    example: str

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, str):
            return Fault.TYPE
        return None if re.fullmatch(self.form, value) else Fault.FORM


class Regex(msgspec.Struct, frozen=True):
    """A regular expression for paths, as the proxy reads it."""

    @property
    def expected(self) -> str:
        return "a regular expression"

    @property
    def example(self) -> str:
        return "^/api/v[0-9]+/"

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, str):
            return Fault.TYPE
        return Fault.FORM if not value or self.reason(value) else None

    def reason(self, value: str) -> str:
        """Return what is wrong with a pattern."""
        found = path_pattern.read(value)
        return found.reason if isinstance(found, path_pattern.BadPattern) else ""


class Boolean(msgspec.Struct, frozen=True):
    """`#true` or `#false`."""

    expected: str = "#true or #false"
    example: bool = True

    def fault(self, value: Scalar) -> Fault | None:
        return None if isinstance(value, bool) else Fault.TYPE


class Integer(msgspec.Struct, frozen=True):
    """A whole number. `unit` is for people: the proxy reads bare numbers."""

    minimum: int = 0
    maximum: int = MAX_INTEGER
    unit: str = ""

    @property
    def expected(self) -> str:
        what = f"an integer in {self.unit}" if self.unit else "an integer"
        if self.maximum < MAX_INTEGER:
            return f"{what} from {self.minimum} to {self.maximum}"
        return f"{what} of at least {self.minimum}"

    @property
    def example(self) -> int:
        return max(self.minimum, min(self.maximum, 7))

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return Fault.TYPE
        return None if self.minimum <= value <= self.maximum else Fault.RANGE


class Number(msgspec.Struct, frozen=True):
    """An integer or a decimal number."""

    minimum: float = 0
    maximum: float = float(MAX_INTEGER)

    @property
    def expected(self) -> str:
        if self.maximum < MAX_INTEGER:
            return f"a number from {self.minimum:g} to {self.maximum:g}"
        return f"a number of at least {self.minimum:g}"

    @property
    def example(self) -> float:
        return (self.minimum + min(self.maximum, self.minimum + 1)) / 2

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return Fault.TYPE
        return None if self.minimum <= value <= self.maximum else Fault.RANGE


class Choice(msgspec.Struct, frozen=True):
    """One of a closed set of strings."""

    values: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    """Other spellings that the proxy accepts. They are not suggested."""
    is_any_case: bool = False
    """Whether the proxy ignores case."""
    fallback: str | None = None
    """What the proxy uses instead of an unknown value without a word. Such a value is only a warning."""

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.values)}"

    @property
    def example(self) -> str:
        return self.values[0]

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, str):
            return Fault.TYPE
        spelled = value.lower() if self.is_any_case else value
        return None if spelled in self.values or spelled in self.aliases else Fault.CHOICE


class Address(msgspec.Struct, frozen=True):
    """IP:PORT, where the proxy listens."""

    expected: str = "an address IP:PORT"
    example: str = "127.0.0.1:8080"

    def fault(self, value: Scalar) -> Fault | None:
        return _address_fault(value, is_ip)


class HostPort(msgspec.Struct, frozen=True):
    """HOST:PORT, where the proxy connects to. The host is a name or an IP address."""

    expected: str = "an address HOST:PORT"
    example: str = "backend.internal:8080"

    def fault(self, value: Scalar) -> Fault | None:
        return _address_fault(value, is_host)


class Url(msgspec.Struct, frozen=True):
    """A URL with a host."""

    schemes: tuple[str, ...] = ("http", "https")

    @property
    def expected(self) -> str:
        return f"a URL such as {self.example}"

    @property
    def example(self) -> str:
        return f"{self.schemes[0]}://host.internal:8080/path"

    def fault(self, value: Scalar) -> Fault | None:
        if not isinstance(value, str):
            return Fault.TYPE
        found = _URL.fullmatch(value)
        if found is None or found[1] not in self.schemes or not is_host(found[2]):
            return Fault.FORM
        return Fault.PORT if found[3] is not None and not is_port(found[3]) else None


class Either(msgspec.Struct, frozen=True):
    """A value of one of several types. The first type of the value's kind decides what is wrong with it."""

    types: tuple[ValueType, ...]

    @property
    def expected(self) -> str:
        return ", or ".join(each.expected for each in self.types)

    @property
    def example(self) -> Scalar:
        return self.types[0].example

    def fault(self, value: Scalar) -> Fault | None:
        faults = [each.fault(value) for each in self.types]
        if None in faults:
            return None
        return next((fault for fault in faults if fault is not Fault.TYPE), Fault.TYPE)


ValueType: TypeAlias = (
    Text | Pattern | Regex | Boolean | Integer | Number | Choice | Address | HostPort | Url | Either
)

TEXT: Final = Text()
HEADER_NAME: Final = Pattern("a header name without spaces and colons", r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", "X-Name")
"""A token of RFC 9110."""
HEADER_VALUE: Final = Pattern(
    "a string without line ends and control characters", r"[^\x00-\x08\x0a-\x1f\x7f]*", "1"
)
ANY_TEXT: Final = Text(may_be_empty=True)
PATH: Final = Text("a path", "/path/to/file")
BOOLEAN: Final = Boolean()
COUNT: Final = Integer()
POSITIVE: Final = Integer(minimum=1)
SECONDS: Final = Integer(unit="seconds")
MILLISECONDS: Final = Integer(unit="milliseconds")
BYTES: Final = Integer(unit="bytes")
STATUS: Final = Integer(minimum=100, maximum=599)
DURATION: Final = Either((SECONDS, Pattern("a duration such as 30s or 1h", _DURATION.pattern, "30s")))


def _address_fault(value: Scalar, is_valid_host: Callable[[str], bool]) -> Fault | None:
    if not isinstance(value, str):
        return Fault.TYPE
    host, fault = split_port(value)
    if fault is None and not is_valid_host(host):
        return Fault.ADDRESS
    return fault


def split_port(text: str) -> tuple[str, Fault | None]:
    """Return the host before the port, and what is wrong with the rest of an address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or (":" in host and not host.startswith("[")):
        return text, Fault.ADDRESS
    if not port or not port.isascii() or not port.isdigit():
        return host, Fault.PORT if port.lstrip("+-").isdigit() else Fault.ADDRESS
    return host, None if is_port(port) else Fault.PORT


def is_port(digits: str) -> bool:
    """Whether this is a port that can be connected to."""
    return len(digits) <= 9 and 1 <= int(digits) <= MAX_PORT


def is_ip(host: str) -> bool:
    """Whether this is an IPv4 address, or an IPv6 address in brackets."""
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        parsed = ipaddress.ip_address(host[1:-1] if is_bracketed else host)
    except ValueError:
        return False
    return (parsed.version == 6) == is_bracketed


def is_host(host: str) -> bool:
    """Whether this is a host name or an IP address."""
    if host.startswith("[") or host.replace(".", "").isdigit():
        return is_ip(host)
    return _HOST.fullmatch(host) is not None


def is_scheme(text: str) -> bool:
    """Whether a text starts like a URL."""
    return _SCHEME.match(text) is not None
