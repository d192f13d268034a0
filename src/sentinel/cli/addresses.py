"""Addresses to listen on, as options. Apart from the other options: who parses them loads an HTTP server."""

from __future__ import annotations

import click

from sentinel.runtime.listening import Address, parse_address


def bind_address(context: click.Context, parameter: click.Parameter, text: str) -> Address | None:
    """A callback for options: the address, None for nowhere, or a usage error that says what was expected."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
