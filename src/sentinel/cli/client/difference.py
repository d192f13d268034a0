"""What stands between two values: as the merge patch that leads from one to the other, and as lines for people."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.options import Output
from sentinel.core import merge_patch
from sentinel.core.json import Json

_CONTEXT = 3
_COLOURS = {"+": "green", "-": "red"}


def patch(before: dict[str, Json], after: dict[str, Json]) -> dict[str, Json]:
    """The merge patch that makes `after` of `before`; empty where nothing differs.

    `after` has no null members outside of lists: no merge patch leads to one.
    """
    found: dict[str, Json] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            found[name] = value
            continue
        old = before[name]
        if isinstance(old, dict) and isinstance(value, dict):
            within = patch(old, value)
            if within:
                found[name] = within
        elif merge_patch.canonical(old) != merge_patch.canonical(value):
            found[name] = value
    return found


def lines(before: Json, after: Json, *, is_coloured: bool) -> Iterator[str]:
    """A diff of both as YAML, keys sorted; nothing where they are equal. Dots stand for what is left out."""
    is_first = True
    diff = difflib.unified_diff(_text(before), _text(after), n=_CONTEXT, lineterm="")
    for line in islice(diff, 2, None):  # the names of two files come first
        if line.startswith("@@"):
            if not is_first:
                yield " …"
            is_first = False
            continue
        colour = _COLOURS.get(line[0]) if is_coloured else None
        yield click.style(line, fg=colour) if colour else line


def _text(value: Json) -> list[str]:
    if not value:
        return []
    in_order = msgspec.json.decode(merge_patch.canonical(value))
    return options.encode(in_order, Output.YAML).splitlines()
