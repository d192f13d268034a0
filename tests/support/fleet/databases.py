"""The databases of a fleet API, as parameters of tests."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import assert_never

import pytest


class DatabaseKind(StrEnum):
    """A supported database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


def fresh_database(kind: DatabaseKind, request: pytest.FixtureRequest, directory: Path) -> str:
    """Return the URL of an empty database. Only tests that use PostgreSQL request its fixture."""
    match kind:
        case DatabaseKind.SQLITE:
            return f"sqlite:///{directory / 'fleet.db'}"
        case DatabaseKind.POSTGRESQL:
            url: str = request.getfixturevalue("fresh_postgresql_database")
            return url
        case _:
            assert_never(kind)
