"""How versions of configurations are named, `<config>@<n>`, and recognized by the hash of their content."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern

MAX_NUMBER: Final = 2**31 - 1
"""The protocol has 32 bits for the number."""

_CONFIG_ID = re.compile(segment_pattern(MAX_ID_LENGTH))
_NUMBER = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


class VersionName(msgspec.Struct, frozen=True, order=True):
    """Names one version of one configuration."""

    config_id: str
    number: int
    """Counts from 1."""

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        return f"{self.config_id}@{self.number}"


def parse(text: str) -> VersionName | None:
    """Read `<config>@<n>`; None if it is something else, or empty."""
    config_id, _, number = text.rpartition("@")
    if not is_config_id(config_id) or _NUMBER.fullmatch(number) is None or int(number) > MAX_NUMBER:
        return None
    return VersionName(config_id, int(number))


def is_config_id(text: str) -> bool:
    """Whether this is a valid id of a configuration: a URL segment that needs no escaping, so without an `@`."""
    return _CONFIG_ID.fullmatch(text) is not None


def content_hash(content: str) -> str:
    """Return the SHA-256 of a configuration as people wrote it, in lower-case hexadecimal."""
    return hashlib.sha256(content.encode()).hexdigest()
