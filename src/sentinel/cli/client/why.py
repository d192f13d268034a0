"""`sentinel why`: what a resource waits for, and when somebody looks again."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from sentinel.cli import options, table
from sentinel.cli.client import session
from sentinel.cli.client.fleet import FleetClient
from sentinel.cli.client.session import ServerOptions
from sentinel.cli.options import Output
from sentinel.core.fleet import why as reasons
from sentinel.core.fleet.why import Wait, Why
from sentinel.core.pulse.decision import Policy
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable

_USUAL = Policy(max_age_not_ready=timedelta(seconds=10), max_age_ready=timedelta(minutes=30))
"""Of a pulse whose configuration says nothing else."""


class WhyOutput(msgspec.Struct, frozen=True):
    """Why, as it is printed for scripts; what does not apply is left out."""

    id: str
    ready: bool
    waiting_for: tuple[Wait, ...]
    next_pulse: datetime | None
    """When the next event is due, which may be now; null while it is paused."""
    paused: bool | UnsetType = UNSET
    deleting: bool | UnsetType = UNSET
    children: int | UnsetType = UNSET
    """How many resources a deletion still waits for."""


@click.command
@click.argument("resource_id", metavar="ID")
@click.option(
    "--max-age-not-ready",
    callback=session.duration,
    help="As the Sentinel that watches it has it. Default: what the server says, or 10s where it does not know.",
)
@click.option(
    "--max-age-ready",
    callback=session.duration,
    help="As the Sentinel that watches it has it. Default: what the server says, or 30m.",
)
@click.option(
    "--pulse-on-progress",
    is_flag=True,
    default=None,
    help="As the Sentinel that watches it has it: an adapter that is done makes an event due. Default: what the"
    " server says, or off.",
)
@options.output_option
@session.server_options
def why(
    resource_id: str,
    max_age_not_ready: timedelta | None,
    max_age_ready: timedelta | None,
    pulse_on_progress: bool | None,
    output: Output,
    target: ServerOptions,
) -> int:
    """Say why a resource is not ready, or not gone: which adapter it waits for, since when, and what that adapter
    said last; and when the next event is due."""
    given = {
        "max_age_not_ready": max_age_not_ready,
        "max_age_ready": max_age_ready,
        "follows_progress": pulse_on_progress,
    }

    async def work(fleet: FleetClient) -> int:
        found = await fleet.find(resource_id)
        waiting = await fleet.waiting(resource_id)
        policy = _USUAL if waiting.policy is UNSET else waiting.policy
        statuses = await fleet.statuses(found)
        now = SystemClock().now()
        explained = reasons.explain(
            found.document,
            statuses=statuses,
            waiting={each.adapter: each.since for each in waiting.waiting_for},
            required=waiting.required_adapters,
            children=waiting.children,
            policy=replace(policy, **{name: value for name, value in given.items() if value is not None}),
            now=now,
        )
        if output is Output.TABLE:
            for line in reasons.sentences(explained, now=now, duration=table.format_duration):
                click.echo(printable(line))
        else:
            click.echo(options.encode(_answer(explained), output))
        return ExitCode.SUCCESS

    return target.use(work)


def _answer(explained: Why) -> WhyOutput:
    return WhyOutput(
        id=explained.document.id,
        ready=explained.is_ready,
        waiting_for=explained.waiting_for,
        next_pulse=explained.next_pulse,
        paused=explained.is_paused or UNSET,
        deleting=explained.document.is_deleting or UNSET,
        children=explained.children or UNSET,
    )
