"""`sentinel why`: what a resource waits for, and when its next event is due."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from sentinel.cli import options, table
from sentinel.cli.client import names, session
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import OutputFormat
from sentinel.core.fleet import why as fleet_why
from sentinel.core.fleet.why import Wait, Why
from sentinel.core.pulse.decision import Policy
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable

_DEFAULT_POLICY = Policy(max_age_not_ready=timedelta(seconds=10), max_age_ready=timedelta(minutes=30))
"""The policy of a pulse with default settings."""


class WhyOutput(msgspec.Struct, frozen=True):
    """The explanation, as printed for scripts; fields that do not apply are omitted."""

    id: str
    ready: bool
    waiting_for: tuple[Wait, ...]
    next_pulse: datetime | None
    """When the next event is due, possibly now; null while the resource is paused."""
    paused: bool | UnsetType = UNSET
    deleting: bool | UnsetType = UNSET
    children: int | UnsetType = UNSET
    """The number of children that a deletion still waits for."""


@click.command
@click.argument("resource_id", metavar="ID")
@click.option(
    "--max-age-not-ready",
    callback=session.parse_duration,
    help="The setting of the Sentinel that watches the resource. Default: the server's, else 10s.",
)
@click.option(
    "--max-age-ready",
    callback=session.parse_duration,
    help="The setting of the Sentinel that watches the resource. Default: the server's, else 30m.",
)
@click.option(
    "--pulse-on-progress",
    is_flag=True,
    default=None,
    help="The setting of the Sentinel that watches the resource: an adapter's progress makes an event due. "
    "Default: the server's, else off.",
)
@options.output_option
@session.server_options
def why(
    resource_id: str,
    max_age_not_ready: timedelta | None,
    max_age_ready: timedelta | None,
    pulse_on_progress: bool | None,
    output: OutputFormat,
    server: ServerOptions,
) -> int:
    """Explain why a resource is not ready or not deleted yet.

    Prints each adapter that it waits for, since when, what the adapter last reported, and when the next event is
    due.
    """
    overrides = {
        "max_age_not_ready": max_age_not_ready,
        "max_age_ready": max_age_ready,
        "follows_progress": pulse_on_progress,
    }

    async def work(fleet: FleetClient) -> int:
        fetched = await names.resolve(fleet, resource_id)
        waiting = await fleet.waiting(fetched.document.id)
        policy = _DEFAULT_POLICY if waiting.policy is UNSET else waiting.policy
        statuses = await fleet.statuses(fetched)
        now = SystemClock().now()
        explanation = fleet_why.explain(
            fetched.document,
            statuses=statuses,
            waiting={each.adapter: each.since for each in waiting.waiting_for},
            required=waiting.required_adapters,
            children=waiting.children,
            policy=replace(policy, **{name: value for name, value in overrides.items() if value is not None}),
            now=now,
        )
        if output is OutputFormat.TABLE:
            for line in fleet_why.sentences(explanation, now=now, duration=table.format_duration):
                click.echo(printable(line))
        else:
            click.echo(options.encode(_output(explanation), output))
        return ExitCode.SUCCESS

    return server.run(work)


def _output(explanation: Why) -> WhyOutput:
    return WhyOutput(
        id=explanation.document.id,
        ready=explanation.is_ready,
        waiting_for=explanation.waiting_for,
        next_pulse=explanation.next_pulse,
        paused=explanation.is_paused or UNSET,
        deleting=explanation.document.is_deleting or UNSET,
        children=explanation.children or UNSET,
    )
