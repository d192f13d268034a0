"""How the hub's lists are printed. JSON and YAML have the members of the API's lists, but always all items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import click
import msgspec

from sentinel.cli import options
from sentinel.cli.options import OutputFormat

T = TypeVar("T")


class ListOutput(msgspec.Struct, Generic[T], frozen=True):
    """The JSON or YAML output of a list."""

    total: int
    items: Sequence[T]


def print_list(items: Sequence[T], lines: Iterable[str], output: OutputFormat) -> None:
    """Print all items. `lines` are the table of them."""
    if output is not OutputFormat.TABLE:
        click.echo(options.encode(ListOutput(len(items), items), output))
        return
    for line in lines:
        click.echo(line)


def print_update(items: Sequence[T], output: OutputFormat) -> None:
    """Print all items as one of several lists on the same output: a line of JSON, or a document of YAML."""
    updated = ListOutput(len(items), items)
    click.echo(
        msgspec.json.encode(updated) if output is OutputFormat.JSON else f"---\n{options.encode(updated, output)}"
    )
