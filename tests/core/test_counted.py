"""Messages count one thing, or several."""

from __future__ import annotations

import pytest

from sentinel.core.counted import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 errors"), (1, "1 error"), (2_000, "2,000 errors")])
def test_a_number_decides_about_the_plural(number: int, text: str) -> None:
    assert counted(number, "error") == text


def test_an_irregular_plural_is_given() -> None:
    assert [counted(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]
