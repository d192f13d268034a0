"""`sentinel hub` and its groups of commands."""

from __future__ import annotations

import click

from sentinel.cli.lazy_group import LazyGroup

_COMMANDS = {
    "ca": ("sentinel.cli.hub.command:ca", "Make, issue and revoke the certificates of a hub and its agents."),
    "config": ("sentinel.cli.hub.command:config", "Check configurations."),
}
_CA_COMMANDS = {
    "init": ("sentinel.cli.hub.ca:init", "Make a certificate authority, and a certificate for the hub."),
    "issue": ("sentinel.cli.hub.ca:issue", "Issue a certificate for an agent."),
    "list": ("sentinel.cli.hub.ca:list_certificates", "List the certificates of agents."),
    "renew-hub": ("sentinel.cli.hub.ca:renew_hub", "Replace the hub's certificate."),
    "revoke": ("sentinel.cli.hub.ca:revoke", "Revoke every certificate of an agent."),
}
_CONFIG_COMMANDS = {
    "check": ("sentinel.cli.hub.config_check:check", "Check configuration files before anything uses them."),
}


@click.group(cls=LazyGroup, table=_COMMANDS)
def hub() -> None:
    """Manage the configuration of proxies."""


@click.group(cls=LazyGroup, table=_CA_COMMANDS)
def ca() -> None:
    """Manage a certificate authority of your own, by which a hub and its agents recognize each other."""


@click.group(cls=LazyGroup, table=_CONFIG_COMMANDS)
def config() -> None:
    """Check configurations of the proxy, which are written in KDL."""
