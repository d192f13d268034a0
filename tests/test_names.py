"""A test's name is a claim that fits on a line, and its set-up is a fixture or a decorator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LONGEST = 70

TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
NESTED_SCENARIO = re.compile(r"^ +async def scenario\(", re.MULTILINE)


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def test_names_of_tests_have_at_most_70_characters(sources: dict[str, str]) -> None:
    names = [(path, name) for path, text in sources.items() for name in TEST.findall(text)]

    assert len(names) > 5_000
    assert [(path, name) for path, name in names if len(name) > LONGEST] == []


def test_no_test_runs_a_nested_coroutine(sources: dict[str, str]) -> None:
    assert [path for path, text in sources.items() if NESTED_SCENARIO.search(text)] == []
