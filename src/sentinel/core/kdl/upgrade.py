"""From version 1 of the language to version 2, with comments and layout as they were.

Version 2 was designed so that a document that both versions accept means the same in both. So only what the
parser rejects has to change, and it knows what to write instead. Lists in brackets, names that are numbers and
values without quotes are in neither version, but what they mean is as clear, so they change, too.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sentinel.core.kdl.parse import corrections
from sentinel.core.kdl.problems import Problem
from sentinel.core.kdl.reading import parse

_VERSION: Final = re.compile("(\ufeff?/-[ \t]*kdl-version[ \t]+)1(?=[ \t]*[\r\n])")


class Upgraded(msgspec.Struct, frozen=True):
    """A document of version 2, and what is still wrong with it."""

    text: str
    problems: tuple[Problem, ...] = ()
    """Positions are those of the new text."""
    changes: int = 0
    """How many places are different."""


def upgrade(source: str | bytes) -> Upgraded:
    """Return a document of version 1, or of both versions mixed, as one of version 2. Never raises."""
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
    edits = corrections(text)
    marker = _VERSION.match(text)
    if marker is not None:
        edits.add(marker.end(1), marker.end(), "2")
    upgraded = edits.apply(text)
    return Upgraded(upgraded, parse(upgraded).problems, len(edits))
