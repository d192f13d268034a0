"""The databases that a fleet API is run on, by name, so that one test says what holds for both."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import assert_never

import pytest


class DatabaseKind(StrEnum):
    """What keeps the fleet."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


def fresh_database(kind: DatabaseKind, request: pytest.FixtureRequest, directory: Path) -> str:
    """The URL of a database without a table; PostgreSQL is started for, and asked of, only those who want it."""
    match kind:
        case DatabaseKind.SQLITE:
            return f"sqlite:///{directory / 'fleet.db'}"
        case DatabaseKind.POSTGRESQL:
            url: str = request.getfixturevalue("fresh_postgresql_database")
            return url
        case _:
            assert_never(kind)
