"""Encoding of resources as rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sentinel.drivers.sql.fleet import rows
from tests.support.fleet.store_records import stored

_STATUSES = b"[" + b",".join([b'{"adapter":"validation","observed_generation":1}'] * 20) + b"]"


def _written(statuses: bytes) -> object:
    return rows.status_columns(replace(stored("c1"), statuses=statuses))["statuses"]


def _read_back(statuses: object) -> bytes:
    values = {**rows.all_columns(stored("c1")), "statuses": statuses}
    return rows.to_resource([values[column.name] for column in rows.RESOURCE.selected_columns]).statuses


def test_repetitive_statuses_are_compressed_and_read_back() -> None:
    written = _written(_STATUSES)

    assert isinstance(written, bytes)
    assert len(written) < len(_STATUSES) / 4
    assert _read_back(written) == _STATUSES


def test_short_statuses_are_not_compressed() -> None:
    assert _written(b"[]") == b"[]"


@pytest.mark.parametrize("statuses", [b"", b"x", b"x\x9c", b"x" * 300])
def test_statuses_that_look_compressed_are_read_back_unchanged(statuses: bytes) -> None:
    assert _read_back(_written(statuses)) == statuses


def test_uncompressed_statuses_of_older_versions_are_still_read() -> None:
    assert _read_back(_STATUSES) == _STATUSES
