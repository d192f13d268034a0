"""What is read, with the position of everything, compared with files that people can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.kdl.trees import FILES, draw, golden


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_document_has_the_tree_beside_it(file: Path) -> None:
    assert draw(file) == golden(file).read_text(encoding="utf-8")
