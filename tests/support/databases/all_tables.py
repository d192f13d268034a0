"""The tables of all components, as their modules define them."""

from __future__ import annotations

from sqlalchemy import MetaData

from sentinel.drivers.sql import audit, idempotency
from sentinel.drivers.sql.fleet import tables as fleet

TABLES = MetaData()
for _metadata in (audit.metadata, fleet.metadata, idempotency.metadata):
    for _table in _metadata.sorted_tables:
        _table.to_metadata(TABLES)
