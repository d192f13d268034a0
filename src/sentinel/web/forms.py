"""Forms as browsers send them: `application/x-www-form-urlencoded`.

Starlette's parser needs another dependency for this encoding. The standard library parses it; this module adds
limits and errors that name the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from sentinel.web import decoding, problem
from sentinel.web.problem import FieldError

CONTENT_TYPE: Final = "application/x-www-form-urlencoded"
MAX_FIELDS: Final = 1000
"""Each occurrence of a repeated field counts."""


class Form:
    """The fields of a form."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a field. A repeated field is a 400 that names it."""
        values = self._values.get(name, (default,))
        if len(values) != 1:
            raise problem.bad_field(name, "expected this field once, got it repeatedly")
        return values[0]

    def get_all(self, name: str) -> Sequence[str]:
        """Return all values of a field; none if it is absent."""
        return self._values.get(name, ())


def parse(body: bytes) -> Form:
    """Parse a form. Raises `Problem` if it is not UTF-8, contains a NUL or has too many fields."""
    content = decoding.decode_utf8(body)
    if content.count("&") >= MAX_FIELDS:
        raise problem.bad_request(f"expected at most {MAX_FIELDS} form fields, got more")
    try:
        pairs = parse_qsl(content, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise problem.bad_request("expected form fields in UTF-8, got a byte that is not") from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    errors = [
        FieldError(name, "expected text, got a NUL character")
        for name, given in values.items()
        if "\0" in name or any("\0" in value for value in given)
    ]
    if errors:
        raise problem.bad_fields(errors)
    return Form(values)
