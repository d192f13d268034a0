"""Encoding of resources, reports and generations as rows."""

from __future__ import annotations

import zlib

import msgspec
from sqlalchemy import Select, select

from sentinel.core.fleet.documents import DiscardedReport, GenerationRecord
from sentinel.drivers.sql.engine.columns import from_micros, to_micros
from sentinel.drivers.sql.engine.statements import Row, SqlValue
from sentinel.drivers.sql.fleet import tables
from sentinel.ports.fleet_store import StoredResource

_resource = tables.resources.c
RESOURCE: Select[tuple[object, ...]] = select(
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
    _resource.attributes,
)
"""All columns of a resource, in the order that `to_resource` expects."""

_MIN_COMPRESSED = 256
_ZLIB_HEADER = zlib.compress(b"")[:1]
"""Marks compressed statuses: JSON never begins with this byte, and other bytes that do are compressed too."""

encode = msgspec.json.Encoder().encode
decode_texts = msgspec.json.Decoder(dict[str, str]).decode
_waiting = msgspec.json.Decoder(dict[str, int])
_discarded = msgspec.json.Decoder(DiscardedReport)
_generation = msgspec.json.Decoder(GenerationRecord)


def to_resource(row: Row) -> StoredResource:
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
        labels=decode_texts(row[10]),
        waiting={adapter: from_micros(since) for adapter, since in _waiting.decode(row[11]).items()},
        document=row[12],
        statuses=_decompress(row[13]),
        attributes=decode_texts(row[14]),
    )


def status_columns(resource: StoredResource) -> dict[str, SqlValue]:
    """The columns that a report may change."""
    return {
        "version": resource.version,
        "is_ready": resource.is_ready,
        "waiting": encode({adapter: to_micros(since) for adapter, since in resource.waiting.items()}),
        "document": resource.document,
        "statuses": _compress(resource.statuses),
        "attributes": encode(resource.attributes),
    }


def description_columns(resource: StoredResource) -> dict[str, SqlValue]:
    """The columns that only the resource's owner or the server's configuration changes."""
    return {
        "labels": encode(resource.labels),
        "updated_time": to_micros(resource.updated_time),
        "adapters": resource.adapters,
    }


def _immutable_columns(resource: StoredResource) -> dict[str, SqlValue]:
    return {
        "id": resource.id,
        "plural": resource.plural,
        "name": resource.name,
        "parent": resource.parent,
        "root": resource.root,
        "created_time": to_micros(resource.created_time),
    }


def all_columns(resource: StoredResource) -> dict[str, SqlValue]:
    return _immutable_columns(resource) | status_columns(resource) | description_columns(resource)


def _compress(statuses: bytes) -> bytes:
    """Compress long statuses: they repeat themselves, and a list has to read past them to the next document."""
    if len(statuses) >= _MIN_COMPRESSED or statuses.startswith(_ZLIB_HEADER):
        return zlib.compress(statuses, level=1)
    return statuses


def _decompress(statuses: bytes) -> bytes:
    return zlib.decompress(statuses) if statuses.startswith(_ZLIB_HEADER) else statuses


def to_discarded(row: Row) -> DiscardedReport:
    return _discarded.decode(row[0])


def to_generation(row: Row) -> GenerationRecord:
    return _generation.decode(row[0])
