"""Checking bodies strictly, against taking what msgspec takes.

No library refuses what we do: a key that comes twice, integers beyond 64 bits, half of a surrogate pair, a NUL,
too many levels. What can be measured is what that costs, and whether one parse instead of two would be cheaper:
the standard library's parser with hooks, and msgspec to build from its tree. That way cannot keep a part of a body
as it came, as `data` of a report is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench.alternating import OURS, Way, cheapest
from sentinel.api.request_bodies import NewResource
from sentinel.core.fleet.documents import Report
from sentinel.web import decoding, strict_json
from tests.support.fleet.http_client import report

ALONE = "msgspec alone"
CREATION_BYTES = 1_800

_ROUNDS = 100
_TIMES = 200


class JsonFigures(msgspec.Struct, frozen=True):
    """CPU microseconds of a body by the way it was decoded."""

    report: Mapping[str, float]
    """350 bytes."""
    creation: Mapping[str, float]
    """1.8 kB, of which most is a spec of small values."""

    @property
    def check_microseconds(self) -> float:
        """What the check alone adds to a report."""
        return self.report[OURS] - self.report[ALONE]


async def measure() -> JsonFigures:
    """Decodes the same bodies over and over."""
    node = {"type": "m5.large", "count": 3, "labels": {"tier": "gold", "pool": "workers"}}
    creation: dict[str, Any] = {"name": "cluster-1", "labels": {"region": "us-east"}, "spec": {"nodes": []}}
    while len(msgspec.json.encode(creation)) < CREATION_BYTES:
        creation["spec"]["nodes"].append(node)
    return JsonFigures(
        report=await _ways(msgspec.json.encode(report("dns", at=datetime.now(UTC))), Report),
        creation=await _ways(msgspec.json.encode(creation), NewResource),
    )


async def _ways(body: bytes, struct: type[msgspec.Struct]) -> dict[str, float]:
    hooked = json.JSONDecoder(object_pairs_hook=_members, parse_int=int, parse_float=float)

    def ours() -> None:
        strict_json.check(body)
        decoding.decode(body, struct)

    def once() -> None:
        msgspec.convert(hooked.decode(body.decode()), struct)

    ways: dict[str, Callable[[], object]] = {
        OURS: ours,
        ALONE: lambda: decoding.decode(body, struct),
        "parsed once": once,
    }
    return await cheapest({name: _repeated(way) for name, way in ways.items()}, rounds=_ROUNDS)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key that comes twice")
    return members


def _repeated(decode: Callable[[], object]) -> Way:
    async def several() -> int:
        for _ in range(_TIMES):
            decode()
        return _TIMES

    return several
