"""A text that must not be seen.

Settings are logged, dumped, compared in tests and carried in tracebacks. A secret wrapped in `Secret` goes
through all of that masked; the one place that needs the text, the driver's constructor, asks for it by name.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

MASK = "***"


class Secret:
    """Shows a mask wherever Python would show a value; `reveal()` is the only way to the text."""

    __slots__ = ("_shown", "_text")

    def __init__(self, text: str, *, shown: str = MASK) -> None:
        self._text = text
        self._shown = shown

    def reveal(self) -> str:
        """The text itself, for the driver that sends it."""
        return self._text

    def __str__(self) -> str:
        return self._shown

    def __format__(self, spec: str) -> str:
        return format(self._shown, spec)

    def __repr__(self) -> str:
        return f"Secret({self._shown!r})"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(
            self._text.encode("utf-8", "surrogatepass"), other._text.encode("utf-8", "surrogatepass")
        )

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        # A pickle is a dump like any other, and nothing here needs one.
        raise TypeError("a secret is not pickled")
