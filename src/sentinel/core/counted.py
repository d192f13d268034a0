"""Numbers of things in messages: "1 error", "2 errors"."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number of things. `many` is for a plural that is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
