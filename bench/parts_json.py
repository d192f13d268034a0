"""Strict checks of JSON bodies, against msgspec alone.

No library rejects what we reject: duplicate keys, integers beyond 64 bits, lone surrogates, NUL, deep nesting.
So we measure the cost of the checks, and whether one parse instead of two would be cheaper: the standard
library's parser with hooks, and msgspec to convert its result. That cannot keep a part of a body encoded, as
`data` of a report is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench.alternating import OURS, Variant, cheapest
from sentinel.api.request_bodies import NewResource
from sentinel.core.fleet.documents import Report
from sentinel.web import decoding, strict_json
from tests.support.fleet.http_client import report

ALONE = "msgspec alone"
CREATION_BYTES = 1_800

_ROUNDS = 100
_TIMES = 200


class JsonFigures(msgspec.Struct, frozen=True):
    """CPU microseconds per body, by way of decoding.

    The difference between ours and msgspec alone is the cost of the strict check.
    """

    report: Mapping[str, float]
    """350 bytes."""
    creation: Mapping[str, float]
    """1.8 kB, mostly a spec of small values."""

    @property
    def check_microseconds(self) -> float:
        """The cost of the check for a report."""
        return self.report[OURS] - self.report[ALONE]


async def measure() -> JsonFigures:
    """Decode the same bodies repeatedly."""
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

    variants: dict[str, Callable[[], object]] = {
        OURS: ours,
        ALONE: lambda: decoding.decode(body, struct),
        "parsed once": once,
    }
    return await cheapest({name: _repeated(variant) for name, variant in variants.items()}, rounds=_ROUNDS)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _repeated(decode: Callable[[], object]) -> Variant:
    async def several() -> int:
        for _ in range(_TIMES):
            decode()
        return _TIMES

    return several
