"""Databases without tables, for fixtures with the parameters "sqlite" and "postgresql"."""

from __future__ import annotations

from pathlib import Path

import pytest

BOTH = ("sqlite", "postgresql")


def empty_database(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of an empty database of the kind that the fixture's parameter names."""
    if request.param == "sqlite":
        return f"sqlite:///{folder / 'fleet.db'}"
    url: str = request.getfixturevalue("fresh_postgresql_database")
    return url
