"""`sentinel hub instances`: lists proxy instances, and says what each should run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import click

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.version_argument import VERSION
from sentinel.cli.hub.watched_list import show, watch_options
from sentinel.cli.options import OutputFormat
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.runtime.process import ExitCode

_HEADER = ("ID", "NAME", "STATE", "CURRENT", "ASSIGNED", "SYNC", "LAST SEEN", "MESSAGE")
_COLORS = {
    State.ONLINE: "green",
    State.DEPLOYING: "cyan",
    State.DEGRADED: "yellow",
    State.OFFLINE: "red",
    State.DRAINING: "magenta",
    State.REMOVED: "bright_black",
}


@click.group()
def instances() -> None:
    """List, assign, drain and remove proxy instances."""


@instances.command("list")
@session.selector_option
@click.option(
    "--state", type=click.Choice([state.value for state in State]), default=None, help="Only this state."
)
@watch_options
@options.output_option
@session.server_options
def list_instances(
    selector: str, state: str | None, watch: bool, interval: timedelta, output: OutputFormat, server: ServerOptions
) -> int:
    """List instances: their states, what they run and what they should run.

    Removed instances are listed only with --state removed. With --watch, JSON is a line for each list,
    and YAML a document.
    """
    return show(
        server,
        lambda hub: hub.instances(selector=selector, state=state or ""),
        render=_lines,
        # Always the age "just now", because being seen again is not a change.
        compared=lambda instance: _row(instance, instance.last_seen_time),
        output=output,
        interval=interval if watch else None,
    )


@instances.command()
@click.argument("instance_id", metavar="ID")
@options.output_option
@session.server_options
def get(instance_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Print one instance with everything that is known of it."""

    async def work(hub: HubApiClient) -> int:
        found = await hub.instance(instance_id)
        click.echo(options.encode(found, OutputFormat.YAML if output is OutputFormat.TABLE else output))
        return ExitCode.SUCCESS

    return run(server, work)


@instances.command()
@click.argument("instance_id", metavar="ID")
@click.argument("version", type=VERSION, required=False)
@click.option("--none", "is_removed", is_flag=True, help="Assign nothing: the instance may run what it runs.")
@options.output_option
@session.server_options
def assign(
    instance_id: str, version: VersionName | None, is_removed: bool, output: OutputFormat, server: ServerOptions
) -> int:
    """Let the instance ID run VERSION, such as edge@3, at once and without a deployment."""
    if (version is None) != is_removed:
        raise click.UsageError("expected either a VERSION such as edge@3 or --none")

    async def work(hub: HubApiClient) -> int:
        if version is None:
            changed = await hub.unassign(instance_id)
        else:
            changed = await hub.assign(instance_id, version)
        message = f"instance {instance_id}: " + (f"{version} assigned" if version else "nothing assigned")
        click.echo(message if output is OutputFormat.TABLE else options.encode(changed, output))
        return ExitCode.SUCCESS

    return run(server, work)


@instances.command()
@click.argument("instance_id", metavar="ID")
@click.option("--reason", default="", help="For the agent's log and the audit.")
@options.output_option
@session.server_options
def drain(instance_id: str, reason: str, output: OutputFormat, server: ServerOptions) -> int:
    """Let the instance ID finish its connections and leave the fleet."""

    async def work(hub: HubApiClient) -> int:
        return _print_left(await hub.drain(instance_id, reason), output)

    return run(server, work)


@instances.command()
@click.argument("instance_id", metavar="ID")
@options.output_option
@session.server_options
def remove(instance_id: str, output: OutputFormat, server: ServerOptions) -> int:
    """Remove the instance ID: it drains first, unless it is offline."""

    async def work(hub: HubApiClient) -> int:
        return _print_left(await hub.remove(instance_id), output)

    return run(server, work)


def _print_left(instance: InstanceDocument, output: OutputFormat) -> int:
    message = f"instance {instance.id} is {instance.state}"
    click.echo(message if output is OutputFormat.TABLE else options.encode(instance, output))
    return ExitCode.SUCCESS


def _lines(found: Sequence[InstanceDocument], now: datetime) -> Iterator[str]:
    columns = session.terminal_width()
    header, *rows = table.render(_HEADER, [_row(each, now) for each in found])
    yield session.truncate(header, columns)
    for instance, row in zip(found, rows, strict=True):
        line = session.truncate(row, columns)
        color = _COLORS.get(instance.state) if session.is_terminal() else None
        yield click.style(line, fg=color) if color else line


def _row(instance: InstanceDocument, now: datetime) -> tuple[str, ...]:
    seen = f"{table.format_duration(max(now - instance.last_seen_time, timedelta(0)))} ago"
    return (
        instance.id,
        instance.name,
        instance.state,
        "" if instance.current is None else instance.current.version or "unknown",
        instance.assigned or "",
        "yes" if instance.in_sync else "no",
        seen,
        instance.message,
    )
