"""JSON of any shape, and the errors of decoding it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
"""JSON whose schema is not ours, such as a spec or a Kubernetes object."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything that msgspec raises on bytes of the wrong form. Nesting that is too deep raises RecursionError."""


class Malformed(ValueError):
    """A document that cannot be read as the expected type. The message says what is wrong with it."""
