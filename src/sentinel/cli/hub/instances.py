"""`sentinel hub instances`: lists proxy instances, and says what each should run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import click

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.hub import list_output
from sentinel.cli.hub.client import HubApiClient, run
from sentinel.cli.hub.list_output import print_list
from sentinel.cli.hub.version_argument import VERSION
from sentinel.cli.options import OutputFormat
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import VersionName
from sentinel.drivers.rest.errors import ServerError
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
_INTERRUPTED = 128 + signal.SIGINT
_CLEAR = "\x1b[H\x1b[2J"


@click.group()
def instances() -> None:
    """List, assign, drain and remove proxy instances."""


@instances.command("list")
@session.selector_option
@click.option(
    "--state", type=click.Choice([state.value for state in State]), default=None, help="Only this state."
)
@click.option("--watch", is_flag=True, help="Print the list again whenever it has changed, until Ctrl-C.")
@click.option(
    "--interval", callback=session.parse_duration, default="1s", help="How often --watch looks. Default: 1s."
)
@options.output_option
@session.server_options
def list_instances(
    selector: str, state: str | None, watch: bool, interval: timedelta, output: OutputFormat, server: ServerOptions
) -> int:
    """List instances: their states, what they run and what they should run.

    Removed instances are listed only with --state removed. With --watch, JSON is a line for each list,
    and YAML a document.
    """

    is_screen = watch and output is OutputFormat.TABLE and session.is_terminal()

    async def work(hub: HubApiClient) -> int:
        printed: Sequence[object] | None = None
        is_failing = False
        while True:
            try:
                found = await hub.instances(selector=selector, state=state or "")
            except ServerError as error:
                if printed is None or not error.is_retryable:
                    raise
                if not is_failing:
                    session.fail(f"{error} – trying again until Ctrl-C")
                is_failing = True
            else:
                now = datetime.now(UTC)
                # Only a screen that is drawn again shows how the time passes. Elsewhere, that instances were seen
                # again is no change.
                shown = [_row(each, now if is_screen else each.last_seen_time) for each in found]
                if shown != printed or is_failing:
                    if is_screen:
                        click.echo(_CLEAR, nl=False)
                    if watch and output is not OutputFormat.TABLE:
                        list_output.print_update(found, output)
                    else:
                        print_list(found, _lines(found, now), output)
                printed, is_failing = shown, False
            if not watch:
                return ExitCode.SUCCESS
            await asyncio.sleep(interval.total_seconds())

    code = run(server, work)
    return ExitCode.SUCCESS if watch and code == _INTERRUPTED else code


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
