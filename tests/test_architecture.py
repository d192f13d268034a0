"""ARCHITECTURE.md leads a reader through the code, so the modules and names on it have to exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "sentinel"
SYMBOL = re.compile(r"`(?P<module>[a-z_]+(?:/[a-z_]+)+\.py)(?::(?P<name>[A-Za-z_.]+))?`")

SYMBOLS = sorted(
    {(found["module"], found["name"] or "") for found in SYMBOL.finditer((ROOT / "ARCHITECTURE.md").read_text())}
)


def test_the_page_names_modules() -> None:
    assert len(SYMBOLS) > 40


@pytest.mark.parametrize(("module", "name"), SYMBOLS)
def test_a_module_and_name_on_the_page_exist(module: str, name: str) -> None:
    source = (SOURCES / module).read_text()

    for part in filter(None, name.split(".")):
        assert re.search(rf"\b(class|def) {part}\b", source), f"{module} has no {part}"
