"""What `hub config check --level 1` prints for each file of this folder.

Each file is about one code of problems and has its name. Its output is beside it, so that a changed message shows
up as a difference that people can read. `python -m tests.golden.kdl.pictures` writes the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sentinel.cli.hub.picture import Pictures
from sentinel.core import kdl
from sentinel.core.proxy.check import check
from sentinel.core.proxy.problem import Level

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.kdl"))


def draw(file: Path) -> str:
    """Return all problems of a file as a terminal without colour shows them."""
    return "".join(f"{line}\n" for line in _lines(file))


def golden(file: Path) -> Path:
    """Return the file with the expected output."""
    return file.with_suffix(".txt")


def _lines(file: Path) -> Iterator[str]:
    source = file.read_bytes()
    pictures = Pictures(file.name, source, is_colored=False)
    for problem in check(kdl.parse(source), level=Level.SYNTAX).problems:
        yield from pictures.draw(problem)
        yield ""


if __name__ == "__main__":
    for each in FILES:
        golden(each).write_text(draw(each), encoding="utf-8")
