"""ARCHITECTURE.md leads a reader through the code, so the places that it names have to exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "sentinel"
PLACE = re.compile(r"`(?P<module>[a-z_]+(?:/[a-z_]+)+\.py)(?::(?P<name>[A-Za-z_.]+))?`")

PLACES = sorted(
    {(found["module"], found["name"] or "") for found in PLACE.finditer((ROOT / "ARCHITECTURE.md").read_text())}
)


def test_the_page_names_places() -> None:
    assert len(PLACES) > 40


@pytest.mark.parametrize(("module", "name"), PLACES)
def test_a_place_on_the_page_exists(module: str, name: str) -> None:
    source = (SOURCES / module).read_text()

    for part in filter(None, name.split(".")):
        assert re.search(rf"\b(class|def) {part}\b", source), f"{module} has no {part}"
