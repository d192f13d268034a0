"""`sentinel hub` and its groups of commands."""

from __future__ import annotations

import click

from sentinel.cli.lazy_group import LazyGroup

_COMMANDS = {
    "ca": ("sentinel.cli.hub.command:ca", "Make, issue and revoke the certificates of a hub and its agents."),
    "config": ("sentinel.cli.hub.command:config", "Save, compare and check configurations."),
    "deploy": ("sentinel.cli.hub.deploy:deploy", "Roll out a version to many instances."),
    "deployments": (
        "sentinel.cli.hub.deployments:deployments",
        "List, watch, pause, promote, abort and roll back deployments.",
    ),
    "instances": ("sentinel.cli.hub.instances:instances", "List, assign, drain and remove proxy instances."),
    "secret": ("sentinel.cli.hub.command:secret", "Store and delete secrets that configurations name."),
    "serve": ("sentinel.cli.hub.serve:hub_serve", "Serve agents over gRPC, and users over REST."),
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
    "diff": ("sentinel.cli.hub.configs:diff", "Print what a version changes."),
    "get": ("sentinel.cli.hub.configs:get", "Print the text of a version."),
    "list": ("sentinel.cli.hub.configs:list_configs", "List configurations, or the versions of one."),
    "push": ("sentinel.cli.hub.configs:push", "Save a file as a new version."),
}
_SECRET_COMMANDS = {
    "delete": ("sentinel.cli.hub.secret:delete_secret", "Delete a secret."),
    "list": ("sentinel.cli.hub.secret:list_secrets", "List the names of secrets, and who uses them."),
    "set": ("sentinel.cli.hub.secret:set_secret", "Store a secret, from a prompt or standard input."),
}


class _ServingGroup(LazyGroup):
    """`sentinel hub` without a command means `sentinel hub serve`, whose options may follow."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_asking = bool(args) and args[0] in ctx.help_option_names
        if not args or (args[0].startswith("-") and not is_asking):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ServingGroup, table=_COMMANDS)
def hub() -> None:
    """Serve the hub, and manage the configuration of proxies.

    Without a command, serve it.
    """


@click.group(cls=LazyGroup, table=_CA_COMMANDS)
def ca() -> None:
    """Manage a certificate authority of your own, by which a hub and its agents recognize each other."""


@click.group(cls=LazyGroup, table=_CONFIG_COMMANDS)
def config() -> None:
    """Save, compare and check configurations of the proxy, which are written in KDL."""


@click.group(cls=LazyGroup, table=_SECRET_COMMANDS)
def secret() -> None:
    """Manage secrets, which configurations name and the hub keeps encrypted. For admins."""
