"""The history of the tables: every revision that ships, in one line.

All components share one database, so their revisions are one history, whichever of them runs. A component adds its
own behind the newest, in `migrations/`. A program with components that do not ship extends the history with
`History.followed_by`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sentinel.drivers.sql.engine.schema import History

HISTORY: Final = History(("0001", "0002"), (Path(__file__).parent / "migrations",))
