"""Addresses to listen on, as options. Apart from the other options: who parses them loads an HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from sentinel.runtime.listening import Address, parse_address

F = TypeVar("F", bound=Callable[..., object])


def bind_address(context: click.Context, parameter: click.Parameter, text: str) -> Address | None:
    """A callback for options: the address, None for nowhere, or a usage error that says what was expected."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def listen_options(command: F) -> F:
    """`--metrics-bind-address` and `--health-probe-bind-address`, as parameters of these names."""
    metrics = click.option(
        "--metrics-bind-address",
        metavar="ADDRESS",
        callback=bind_address,
        default=":8080",
        show_default=True,
        help="Where /metrics is served; 0 for nowhere.",
    )
    probes = click.option(
        "--health-probe-bind-address",
        metavar="ADDRESS",
        callback=bind_address,
        default=":8081",
        show_default=True,
        help="Where /healthz and /readyz are served; 0 for nowhere.",
    )
    return metrics(probes(command))
