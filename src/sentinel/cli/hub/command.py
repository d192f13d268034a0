"""`sentinel hub` and its groups of commands."""

from __future__ import annotations

import click

from sentinel.cli.lazy_group import LazyGroup

_COMMANDS = {
    "config": ("sentinel.cli.hub.command:config", "Check configurations."),
}
_CONFIG_COMMANDS = {
    "check": ("sentinel.cli.hub.config_check:check", "Check configuration files before anything uses them."),
}


@click.group(cls=LazyGroup, table=_COMMANDS)
def hub() -> None:
    """Manage the configuration of proxies."""


@click.group(cls=LazyGroup, table=_CONFIG_COMMANDS)
def config() -> None:
    """Check configurations of the proxy, which are written in KDL."""
