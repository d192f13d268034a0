"""The names of secrets that the hub keeps, and which of them a configuration needs.

A configuration writes `secret="api-cert"`. Its version lists that as `secret:api-cert`, beside what the agent
finds by itself: `env:…` and `vault:…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern

NAME_EXPECTED: Final = f"letters, digits and ._~- only, at most {MAX_ID_LENGTH}, such as api-cert"
"""What `is_secret_name` accepts, for messages."""
PREFIX: Final = "secret:"

_NAME = re.compile(segment_pattern(MAX_ID_LENGTH))


def is_secret_name(text: str) -> bool:
    """Whether this is a valid name of a secret: a URL segment that needs no escaping."""
    return _NAME.fullmatch(text) is not None


def names(references: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the hub's own secrets among references, each once, in order."""
    return tuple(dict.fromkeys(each.removeprefix(PREFIX) for each in references if each.startswith(PREFIX)))
