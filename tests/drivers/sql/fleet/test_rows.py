"""How resources are written into rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sentinel.drivers.sql.fleet import rows
from tests.support.fleet.store_records import stored

_STATUSES = b"[" + b",".join([b'{"adapter":"validation","observed_generation":1}'] * 20) + b"]"


def _read_back(statuses: object) -> bytes:
    row = [*(rows.lasting(stored("c1")) | rows.described(stored("c1")) | rows.changing(stored("c1"))).items()]
    values = {**dict(row), "statuses": statuses}
    return rows.stored([values[column.name] for column in rows.STORED.selected_columns]).statuses


def test_statuses_that_repeat_themselves_take_little_room_and_are_read_back_as_they_were() -> None:
    written = rows.changing(replace(stored("c1"), statuses=_STATUSES))["statuses"]

    assert isinstance(written, bytes)
    assert len(written) < len(_STATUSES) / 4
    assert _read_back(written) == _STATUSES


def test_short_statuses_are_kept_as_they_are() -> None:
    assert rows.changing(replace(stored("c1"), statuses=b"[]"))["statuses"] == b"[]"


@pytest.mark.parametrize("statuses", [b"", b"x", b"x\x9c", b"x" * 300])
def test_statuses_that_look_as_if_they_were_packed_come_back_as_they_were(statuses: bytes) -> None:
    written = rows.changing(replace(stored("c1"), statuses=statuses))["statuses"]

    assert _read_back(written) == statuses


def test_statuses_from_before_they_were_packed_are_still_read() -> None:
    assert _read_back(_STATUSES) == _STATUSES
