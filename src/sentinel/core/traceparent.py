"""The W3C Trace Context header `traceparent`, which connects spans of several processes to one trace.

Headers and events come from anyone, so an invalid one is ignored and never an error. The sampled flag is the only
flag that is read: the other bits belong to versions that this one need not know.
"""

from __future__ import annotations

import re

import msgspec

_VERSION_0 = "00"
_INVALID_VERSION = "ff"
_SAMPLED = 0x01
_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


class TraceParent(msgspec.Struct, frozen=True):
    """The span that caused some work."""

    trace_id: int
    span_id: int
    is_sampled: bool

    def __str__(self) -> str:
        return f"{_VERSION_0}-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse(header: str) -> TraceParent | None:
    """Return the span that the header names, or None if the header is invalid.

    A version newer than 00 may append more fields, which are ignored.
    """
    match = _HEADER.fullmatch(header)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _INVALID_VERSION or (version == _VERSION_0 and more is not None):
        return None
    parent = TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None
