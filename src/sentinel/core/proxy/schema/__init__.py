"""The schema of the proxy's configuration, as a table.

`row` has the shape of a row and `types` what values may be. The rows are in a module for each area; `table` puts
them together.
"""

from sentinel.core.proxy.schema.row import Entry, Kind, Repeated, Row, When
from sentinel.core.proxy.schema.table import CURRENT, Schema

__all__ = ["CURRENT", "Entry", "Kind", "Repeated", "Row", "Schema", "When"]
