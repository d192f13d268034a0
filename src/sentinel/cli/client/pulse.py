"""`sentinel pulse`: request an event for a resource now, and wait for its adapters."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from sentinel.cli import options, table
from sentinel.cli.client import names, session, wait
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import OutputFormat
from sentinel.core.fleet.documents import Phase
from sentinel.runtime.process import ExitCode


@click.command
@click.argument("resource_id", metavar="ID")
@session.wait_options(until="every required adapter has reported", timeout="2m")
@options.output_option
@session.server_options
def pulse(
    resource_id: str, is_waiting: bool, timeout: timedelta, output: OutputFormat, server: ServerOptions
) -> int:
    """Request an event for a resource now, whatever the age of its status.

    With --wait, an adapter has answered when its report is newer than the request, by the adapter's own clock. A
    report of work in progress does not count.
    """

    async def work(fleet: FleetClient) -> int:
        requested = await fleet.post_action(await names.resolve(fleet, resource_id), "pulse")
        document = requested.document
        if document.paused is True:
            click.echo(
                f"{requested.title} is paused: the event goes out after sentinel resume {document.id}", err=True
            )
            if is_waiting:
                return ExitCode.FAILURE
        required = (await fleet.waiting(document.id)).required_adapters
        since = document.pulse_requested_time
        if not is_waiting or not required or not isinstance(since, datetime):
            note = "" if required else "; it has no required adapters"
            return session.print_resource(requested, f"requested an event for {requested.title}{note}", output)

        async def poll() -> wait.WaitProgress:
            answered = {
                status.adapter
                for status in await fleet.statuses(requested)
                if status.last_report_time >= since and status.observed_generation >= document.generation
            }
            missing = [adapter for adapter in required if adapter not in answered]
            count = f"{len(required) - len(missing)} of {len(required)} adapters have answered"
            return wait.WaitProgress(not missing, f"{count}, waiting for {', '.join(missing)}")

        progress = await wait.poll_until_done(poll, timeout=timeout)
        if not progress.is_done:
            return session.fail(f"{requested.title}: after {table.format_duration(timeout)} {progress.text}")
        current = await fleet.find(document.id)
        state = "ready" if current.document.status.phase is Phase.READY else "not ready"
        message = f"{current.title}: {', '.join(required)} answered; it is {state}"
        return session.print_resource(current, message, output)

    return server.run(work)
