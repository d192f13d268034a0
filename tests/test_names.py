"""A test's name fits on a line, its set-up is a fixture or a decorator, and what only it uses stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST = 70

TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
NESTED_SCENARIO = re.compile(r"^ +async def scenario\(", re.MULTILINE)


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    paths = [path for folder in ("bench", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def test_names_of_tests_have_at_most_70_characters(sources: dict[str, str]) -> None:
    names = [(path, name) for path, text in sources.items() for name in TEST.findall(text)]

    assert len(names) > 5_000
    assert [(path, name) for path, name in names if len(name) > LONGEST] == []


def test_no_test_runs_a_nested_coroutine(sources: dict[str, str]) -> None:
    assert [path for path, text in sources.items() if NESTED_SCENARIO.search(text)] == []


def test_support_is_shared(sources: dict[str, str]) -> None:
    support = [path for path in sources if path.startswith("tests/support/")]

    def is_shared(path: str) -> bool:
        folder, _, name = path.removesuffix(".py").rpartition("/")
        package = folder.replace("/", ".")
        use = re.compile(
            rf"{re.escape(package)}\.{name}\b|from {re.escape(package)} import (?:[^()\n]*|\([^)]*)\b{name}\b"
        )
        users = [each for each, text in sources.items() if each != path and use.search(text)]
        return len(users) > 1 or any(each in support for each in users)

    assert len(support) > 50
    assert [path for path in support if not is_shared(path)] == []
