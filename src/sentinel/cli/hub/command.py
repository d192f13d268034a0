"""`sentinel hub` and its groups of commands."""

from __future__ import annotations

import click

from sentinel.cli.lazy_group import LazyGroup

_COMMANDS = {
    "config": ("sentinel.cli.hub.command:config", "Save, compare and check configurations."),
    "instances": ("sentinel.cli.hub.instances:instances", "List, assign, drain and remove proxy instances."),
}
_CONFIG_COMMANDS = {
    "check": ("sentinel.cli.hub.config_check:check", "Check configuration files before anything uses them."),
    "diff": ("sentinel.cli.hub.configs:diff", "Print what a version changes."),
    "get": ("sentinel.cli.hub.configs:get", "Print the text of a version."),
    "list": ("sentinel.cli.hub.configs:list_configs", "List configurations, or the versions of one."),
    "push": ("sentinel.cli.hub.configs:push", "Save a file as a new version."),
}


@click.group(cls=LazyGroup, table=_COMMANDS)
def hub() -> None:
    """Manage the configuration of proxies."""


@click.group(cls=LazyGroup, table=_CONFIG_COMMANDS)
def config() -> None:
    """Save, compare and check configurations of the proxy, which are written in KDL."""
