"""The command `sentinel`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from sentinel.cli.lazy_group import LazyGroup
from sentinel.runtime.secret_text import mask_secret_text
from sentinel.version import __version__

_COMMANDS = {
    "adapter": (
        "sentinel.cli.adapter.command:adapter",
        "Run an adapter, create a new one, manage its dead letters.",
    ),
    "agent": ("sentinel.cli.agent.command:agent", "Keep the configuration of a proxy as its hub wants it."),
    "api": ("sentinel.cli.api.command:api", "Serve the fleet API: resources, reports, conditions."),
    "apply": ("sentinel.cli.client.apply:apply", "Apply resource files to the fleet, after showing the changes."),
    "backup": ("sentinel.cli.database.backup:backup", "Back up the database of a fleet API, even while it runs."),
    "check": ("sentinel.cli.check:check", "Validate configuration files and show the effective settings."),
    "coverage": (
        "sentinel.cli.pulse.coverage:coverage",
        "Show resources that no configuration watches, or several do.",
    ),
    "create": ("sentinel.cli.client.write:create", "Create a resource."),
    "delete": ("sentinel.cli.client.write:delete", "Delete a resource and its children."),
    "drift": (
        "sentinel.cli.drift.command:drift",
        "Watch the objects of a cluster and trigger its operator on drift.",
    ),
    "drift-operator": (
        "sentinel.cli.drift_operator.command:drift_operator",
        "Keep the objects of OpenBaoClusters as wanted, and correct drift.",
    ),
    "explain": (
        "sentinel.cli.pulse.explain:explain",
        "Explain why each resource would get an event now or not.",
    ),
    "forecast": (
        "sentinel.cli.pulse.forecast:forecast",
        "Predict the events of a configuration, and their cost.",
    ),
    "get": ("sentinel.cli.client.get:get", "List resources: their status, and what each waits for."),
    "hub": ("sentinel.cli.hub.command:hub", "Manage the configuration of proxies."),
    "migrate": ("sentinel.cli.database.migrate:migrate", "Migrate a database, or check whether it is up to date."),
    "operator": (
        "sentinel.cli.operator.command:operator",
        "Run a pulse for each SentinelConfig in Kubernetes.",
    ),
    "patch": ("sentinel.cli.client.write:patch", "Change the spec and labels of a resource."),
    "pause": ("sentinel.cli.client.write:pause", "Stop events for a resource until it is resumed."),
    "proxy": (
        "sentinel.cli.proxy.command:proxy",
        "Run the small proxy, for trying out agents and rollouts.",
    ),
    "pulse": ("sentinel.cli.client.pulse:pulse", "Request an event for a resource now."),
    "restore": ("sentinel.cli.database.backup:restore", "Restore a database from a backup."),
    "resume": ("sentinel.cli.client.write:resume", "Resume events for a paused resource."),
    "run": (
        "sentinel.cli.pulse.run:run",
        "Run the pulse: poll the fleet and publish an event for each due resource.",
    ),
    "token": ("sentinel.cli.identity.token:token", "Create, list and revoke tokens that a server accepts."),
    "up": ("sentinel.cli.up.command:up", "Run the whole loop on this machine, with a live view."),
    "user": ("sentinel.cli.identity.user:user", "Add, list, change and remove users who sign in."),
    "version": ("sentinel.cli.version:version", "Print the version."),
    "watch": ("sentinel.cli.client.watch:watch", "Print resources as they change."),
    "why": ("sentinel.cli.client.why:why", "Explain what a resource waits for, since when, and what is next."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sentinel")
def cli() -> None:
    """Keep a fleet in the state its owners declare."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command. Exits 0 on success, 1 on a failure at run time, 2 on invalid usage or configuration."""
    try:
        code = cli.main(args=arguments, prog_name="sentinel", standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(mask_secret_text(shown.getvalue()), err=True, nl=False)  # it may quote an argument
        sys.exit(2)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has exited, such as `head`.
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
