"""Resources, reports and generations to rows, and back."""

from __future__ import annotations

import zlib

import msgspec
from sqlalchemy import Select, select

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.drivers.sql.engine.columns import from_micros, to_micros
from sentinel.drivers.sql.engine.statements import Row, Value
from sentinel.drivers.sql.fleet import tables
from sentinel.ports.fleet_store import StoredResource

_resource = tables.resources.c
STORED: Select[tuple[object, ...]] = select(
    _resource.id,
    _resource.plural,
    _resource.name,
    _resource.parent,
    _resource.root,
    _resource.created_time,
    _resource.updated_time,
    _resource.version,
    _resource.is_ready,
    _resource.adapters,
    _resource.labels,
    _resource.waiting,
    _resource.document,
    _resource.statuses,
)
"""Everything of a resource, in the order in which `stored` reads it."""

_WORTH_PACKING = 256
_PACKED = zlib.compress(b"")[:1]
"""What is packed begins like this, and what begins like this is packed; no JSON does."""

_encode = msgspec.json.Encoder().encode
_texts = msgspec.json.Decoder(dict[str, str])
_moments = msgspec.json.Decoder(dict[str, int])
_discarded = msgspec.json.Decoder(DiscardedReport)
_generation = msgspec.json.Decoder(GenerationRecord)


def stored(row: Row) -> StoredResource:
    return StoredResource(
        id=row[0],
        plural=row[1],
        name=row[2],
        parent=row[3],
        root=row[4],
        created_time=from_micros(row[5]),
        updated_time=from_micros(row[6]),
        version=row[7],
        is_ready=bool(row[8]),
        adapters=row[9],
        labels=_texts.decode(row[10]),
        waiting={adapter: from_micros(since) for adapter, since in _moments.decode(row[11]).items()},
        document=row[12],
        statuses=_unpacked(row[13]),
    )


def changing(resource: StoredResource) -> dict[str, Value]:
    """What a report may change of a resource."""
    return {
        "version": resource.version,
        "is_ready": resource.is_ready,
        "waiting": _encode({adapter: to_micros(since) for adapter, since in resource.waiting.items()}),
        "document": resource.document,
        "statuses": _packed(resource.statuses),
    }


def described(resource: StoredResource) -> dict[str, Value]:
    """What only its owner changes, or the server's configuration."""
    return {
        "labels": _encode(resource.labels),
        "updated_time": to_micros(resource.updated_time),
        "adapters": resource.adapters,
    }


def lasting(resource: StoredResource) -> dict[str, Value]:
    """What never changes."""
    return {
        "id": resource.id,
        "plural": resource.plural,
        "name": resource.name,
        "parent": resource.parent,
        "root": resource.root,
        "created_time": to_micros(resource.created_time),
    }


def _packed(statuses: bytes) -> bytes:
    """Reports say much the same again and again. A list has to pass over them to get at the next document."""
    is_worth = len(statuses) >= _WORTH_PACKING or statuses.startswith(_PACKED)
    return zlib.compress(statuses, level=1) if is_worth else statuses


def _unpacked(statuses: bytes) -> bytes:
    return zlib.decompress(statuses) if statuses.startswith(_PACKED) else statuses


def encode_report(report: DiscardedReport) -> bytes:
    return _encode(report)


def discarded(row: Row) -> DiscardedReport:
    return _discarded.decode(row[0])


def encode_generation(record: GenerationRecord) -> bytes:
    return _encode(record)


def generation(row: Row) -> GenerationRecord:
    return _generation.decode(row[0])
