"""The command `sentinel`.

Commands are imported when they are called: `sentinel run` in a pod has no business loading what draws the live
view, and a missing extra only matters to the command that needs it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from sentinel.version import __version__

_COMMANDS = {
    "adapter": (
        "sentinel.cli.adapter.command:adapter",
        "Run an adapter, start a new one, look after its dead letters.",
    ),
    "api": ("sentinel.cli.api.command:api", "Serve the fleet API: resources, reports, conditions."),
    "apply": ("sentinel.cli.client.apply:apply", "Make resources what files say; shows first what changes."),
    "backup": ("sentinel.cli.database.backup:backup", "Copy the database of a fleet API, also while it runs."),
    "check": ("sentinel.cli.check:check", "Check configuration files and show the effective settings."),
    "coverage": (
        "sentinel.cli.pulse.coverage:coverage",
        "Show what no configuration watches, and what several do.",
    ),
    "create": ("sentinel.cli.client.write:create", "Create a resource."),
    "delete": ("sentinel.cli.client.write:delete", "Delete a resource, and all that belongs to it."),
    "explain": (
        "sentinel.cli.pulse.explain:explain",
        "Say why each resource would get an event now, or would not.",
    ),
    "forecast": (
        "sentinel.cli.pulse.forecast:forecast",
        "Say what a configuration will send, and what it will cost.",
    ),
    "get": ("sentinel.cli.client.get:get", "Print resources: how each stands, and what it waits for."),
    "migrate": ("sentinel.cli.database.migrate:migrate", "Bring a database up to date, or say whether it is."),
    "patch": ("sentinel.cli.client.write:patch", "Change spec and labels of a resource."),
    "pause": ("sentinel.cli.client.write:pause", "Send no events for a resource until it is resumed."),
    "pulse": ("sentinel.cli.client.pulse:pulse", "Ask for an event for a resource now."),
    "restore": ("sentinel.cli.database.backup:restore", "Put the copy of a database in its place."),
    "resume": ("sentinel.cli.client.write:resume", "Send events for a resource again."),
    "run": (
        "sentinel.cli.pulse.run:run",
        "Run the pulse: poll the fleet and publish an event for each resource due.",
    ),
    "token": ("sentinel.cli.identity.token:token", "Make, list and revoke the tokens that a server accepts."),
    "up": ("sentinel.cli.up.command:up", "Run the whole loop on this machine and watch it work."),
    "version": ("sentinel.cli.version:version", "Print the version."),
    "watch": ("sentinel.cli.client.watch:watch", "Print resources as they change."),
    "why": ("sentinel.cli.client.why:why", "Say what a resource waits for, since when, and what comes next."),
}


class _Commands(click.Group):
    """A group that knows its commands by name and loads them by need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sentinel")
def cli() -> None:
    """Keep a fleet true to what its owners asked for."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Exits 0 on success, 1 on a failure while running, 2 on bad usage or bad configuration."""
    try:
        code = cli.main(args=arguments, prog_name="sentinel", standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        sys.exit(2)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does; nothing is left to say to it.
        sys.stderr.close()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
