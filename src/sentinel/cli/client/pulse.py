"""`sentinel pulse`: an event for a resource now, and what its adapters make of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.client import session, wait
from sentinel.cli.client.fleet import FetchedDocument, FleetClient
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import Output
from sentinel.core.fleet.documents import Phase
from sentinel.runtime.process import ExitCode


@click.command
@click.argument("resource_id", metavar="ID")
@click.option("--wait", "is_waiting", is_flag=True, help="Until every required adapter has reported.")
@click.option("--timeout", callback=session.duration, default="2m", help="How long to wait. Default: 2m.")
@options.output_option
@session.server_options
def pulse(resource_id: str, is_waiting: bool, timeout: timedelta, output: Output, target: ServerOptions) -> int:
    """Ask for an event for a resource now, whatever the age of its status.

    An adapter counts as having answered when it has looked after the request, by its own clock: the same rule by
    which the pulse takes a request for answered. A report that the work is still in progress is no answer yet.
    """

    async def work(fleet: FleetClient) -> int:
        asked = await fleet.mark(await fleet.find(resource_id), "pulse")
        document = asked.document
        if document.paused is True:
            click.echo(
                f"{asked.title} is paused: the event goes out after sentinel resume {document.id}", err=True
            )
            if is_waiting:
                return ExitCode.FAILURE
        required = (await fleet.waiting(resource_id)).required_adapters
        since = document.pulse_requested_time
        if not is_waiting or not required or not isinstance(since, datetime):
            said = f"asked for an event for {asked.title}"
            return _print(asked, said if required else f"{said}, which no adapter is required to answer", output)

        async def progress() -> wait.WaitProgress:
            answered = {
                status.adapter
                for status in await fleet.statuses(asked)
                if status.last_report_time >= since and status.observed_generation >= document.generation
            }
            missing = [adapter for adapter in required if adapter not in answered]
            count = f"{len(required) - len(missing)} of {len(required)} adapters have answered"
            return wait.WaitProgress(not missing, f"{count}, waiting for {', '.join(missing)}")

        end = await wait.until(progress, timeout=timeout)
        if not end.is_done:
            return session.fail(f"{asked.title}: after {table.format_duration(timeout)} {end.text}")
        now = await fleet.find(resource_id)
        standing = "ready" if now.document.status.phase is Phase.READY else "not ready"
        return _print(now, f"{now.title}: {', '.join(required)} answered; it is {standing}", output)

    return target.use(work)


def _print(resource: FetchedDocument, said: str, output: Output) -> ExitCode:
    click.echo(said if output is Output.TABLE else options.encode(msgspec.Raw(resource.body), output))
    return ExitCode.SUCCESS
