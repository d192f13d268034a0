"""The linear history of all shipped revisions.

All components share one database, so they share one history, whichever of them runs. A component appends its
revisions in `migrations/`. A program with additional components extends the history with `History.followed_by`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sentinel.drivers.sql.engine.schema import History

HISTORY: Final = History(
    ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011"),
    (Path(__file__).parent / "migrations",),
)
