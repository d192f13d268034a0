"""Differences between two JSON values: as a merge patch, and as lines of a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.options import OutputFormat
from sentinel.core import merge_patch
from sentinel.core.json import Json

_CONTEXT_LINES = 3
_COLORS = {"+": "green", "-": "red"}


def make_patch(before: dict[str, Json], after: dict[str, Json]) -> dict[str, Json]:
    """Return the merge patch from `before` to `after`; empty if they are equal.

    `after` must not have null members outside of lists: a merge patch cannot produce them.
    """
    patch: dict[str, Json] = {name: None for name in before if name not in after}
    for name, new in after.items():
        if name not in before:
            patch[name] = new
            continue
        old = before[name]
        if isinstance(old, dict) and isinstance(new, dict):
            nested = make_patch(old, new)
            if nested:
                patch[name] = nested
        elif merge_patch.canonical(old) != merge_patch.canonical(new):
            patch[name] = new
    return patch


def render(before: Json, after: Json, *, is_colored: bool) -> Iterator[str]:
    """Yield a diff of both as YAML with sorted keys; nothing if they are equal. Dots mark omitted lines."""
    is_first_hunk = True
    diff = difflib.unified_diff(_yaml_lines(before), _yaml_lines(after), n=_CONTEXT_LINES, lineterm="")
    for line in islice(diff, 2, None):  # skip the two file names
        if line.startswith("@@"):
            if not is_first_hunk:
                yield " …"
            is_first_hunk = False
            continue
        color = _COLORS.get(line[0]) if is_colored else None
        yield click.style(line, fg=color) if color else line


def _yaml_lines(value: Json) -> list[str]:
    if not value:
        return []
    with_sorted_keys = msgspec.json.decode(merge_patch.canonical(value))
    return options.encode(with_sorted_keys, OutputFormat.YAML).splitlines()
