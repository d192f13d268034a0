"""Databases without tables, of each kind that is supported."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import assert_never

import pytest


class DatabaseKind(StrEnum):
    """A supported database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


def empty_database(kind: DatabaseKind, request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of an empty database. Only tests that use PostgreSQL request its fixture."""
    match kind:
        case DatabaseKind.SQLITE:
            return f"sqlite:///{folder / 'fleet.db'}"
        case DatabaseKind.POSTGRESQL:
            url: str = request.getfixturevalue("fresh_postgresql_database")
            return url
        case _:
            assert_never(kind)
