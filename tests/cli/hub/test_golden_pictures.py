"""The messages of level 1, as a terminal shows them: one file for each code of problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentinel.cli.hub.picture import Pictures
from sentinel.core import kdl
from sentinel.core.kdl import Code
from sentinel.core.proxy.check import check
from sentinel.core.proxy.problem import Level
from tests.golden.kdl.pictures import FILES, draw, golden

LARGE = {Code.TOO_LARGE, Code.TOO_MANY_PROBLEMS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_has_the_pictures_beside_it(file: Path) -> None:
    assert draw(file) == golden(file).read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_about_its_code(file: Path) -> None:
    assert f"[{file.stem}]" in draw(file)


def test_every_code_has_a_file() -> None:
    assert {Code(file.stem) for file in FILES} | LARGE == set(Code)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b" " * (kdl.MAX_BYTES + 1), "f.kdl: error: expected at most 2097152 bytes, got more [too-large]"),
        (
            b"=\n" * 1_003,
            "f.kdl:1000:1: error: expected a KDL document, got 3 more problems after the first 1000"
            " [too-many-problems]\n 1000 | =\n      | ^",
        ),
    ],
    ids=["too-large", "too-many-problems"],
)
def test_the_last_problem_of_a_large_file(source: bytes, expected: str) -> None:
    problems = check(kdl.parse(source), level=Level.SYNTAX).problems

    assert "\n".join(Pictures("f.kdl", source, is_colored=False).draw(problems[-1])) == expected
