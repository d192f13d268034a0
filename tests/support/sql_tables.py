"""The tables of all components, as the code describes them."""

from __future__ import annotations

from sqlalchemy import MetaData

from sentinel.drivers.sql import audit
from sentinel.drivers.sql.fleet import tables as fleet

TABLES = MetaData()
for _metadata in (audit.metadata, fleet.metadata):
    for _table in _metadata.sorted_tables:
        _table.to_metadata(TABLES)
