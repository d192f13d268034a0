"""`sentinel explain`: why each resource would get an event now, or would not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import Output
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.core.times import timestamp
from sentinel.pulse.explain import Explanation, Row, UnknownResource
from sentinel.pulse.explain import explain as explain_fleet
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.log import Log
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable


def _moment(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    try:
        # The reader of the resources' own times, so that what they show can be asked about.
        moment = None if text is None else msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
        return None if moment is None else moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        raise click.BadParameter(f'expected a time such as 2025-10-21T12:00:00Z, got "{text}"') from error


@click.command
@inspection.config_option
@click.option("--id", "only", metavar="ID", help="Explain this resource alone; with its data, in the table.")
@click.option("--at", metavar="TIME", callback=_moment, help="As if it were this time (RFC 3339). Default: now.")
@options.set_option
@options.output_option
@options.log_options
def explain(
    config: Path,
    only: str | None,
    at: datetime | None,
    sets: Sequence[str],
    output: Output,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Say why each resource would get an event now, or would not.

    This is the cycle that `sentinel run` makes, with nothing published; it shows what is decided from each
    resource alone, before pacing and before max_events_per_second. Broker settings are not needed.

    Exits with 1 if the fleet cannot be read, or if nothing that is watched has the id.
    """
    loaded = inspection.load(config, sets=sets, log_level=log_level, log_format=log_format)
    if loaded.settings is None:
        return ExitCode.MISCONFIGURED
    settings = loaded.settings

    async def look(session: InspectionSession) -> int:
        async with session.fleet(settings) as fleet:
            try:
                found = await explain_fleet(
                    settings, fleet=fleet, at=at or SystemClock().now(), only=only, progress=session.progress
                )
            except UnknownResource as unknown:
                return session.refuse(str(unknown))
        session.progress.clear()
        session.warn_of_malformed(found.malformed)
        if only is None:
            _warn(found.explanation.resources, session.log)
        if output is Output.TABLE:
            for line in _lines(found.explanation, is_single=only is not None):
                click.echo(line)
        else:
            click.echo(options.encode(found.explanation, output))
        return ExitCode.SUCCESS

    return inspection.look(look, settings=settings, loaded=[loaded])


def _warn(rows: Sequence[Row], log: Log) -> None:
    """Each warning once, however many resources it is about."""
    first: dict[str, str] = {}
    count: dict[str, int] = {}
    for row in rows:
        for warning in row.warnings:
            first.setdefault(warning, row.id)
            count[warning] = count.get(warning, 0) + 1
    for warning, resource_id in first.items():
        log.warning("resource.warning", problem=warning, resources=count[warning], first_resource_id=resource_id)


def _lines(explanation: Explanation, *, is_single: bool) -> Iterator[str]:
    """For people: a row for each resource, then what they amount to."""
    at, summary = explanation.at, explanation.summary
    yield from table.render(
        ("ID", "READY", "GENERATION", "AGE", "DECISION", "REASON", "NEXT EVENT"),
        [
            (
                row.id,
                "yes" if row.is_ready else "no",
                f"{row.generation}/{row.observed_generation}",
                _age(row, at),
                row.decision,
                row.reason,
                _next(row, at),
            )
            for row in explanation.resources
        ],
    )
    yield ""
    if is_single:
        for row in explanation.resources:
            yield f"data: {printable(bytes(row.data).decode())}"
            yield from (f"warning: {printable(warning)}" for warning in row.warnings)
        return
    yield (
        f"{summary.fetched:,} {explanation.resource_type} (selector: {explanation.shard}) at {timestamp(at)}: "
        f"{summary.publish:,} to publish, {summary.skip:,} to skip"
    )
    if summary.by_reason:
        yield ""
        yield from table.render(
            ("NEXT EVENT BECAUSE", "RESOURCES", "EVENTS PER MINUTE"),
            [
                *(
                    (reason, f"{each.resources:,}", table.format_number(each.events_per_minute))
                    for reason, each in summary.by_reason.items()
                ),
                (
                    "all, if every resource stays as it is",
                    f"{summary.fetched:,}",
                    table.format_number(summary.events_per_minute),
                ),
            ],
            numbers=("RESOURCES", "EVENTS PER MINUTE"),
        )


def _age(row: Row, at: datetime) -> str:
    if row.last_updated_time is None:
        return "never"
    age = at - row.last_updated_time
    return f"{table.format_duration(-age)} ahead" if age < timedelta(0) else table.format_duration(age)


def _next(row: Row, at: datetime) -> str:
    if row.decision is PacingVerdict.PUBLISH:
        return "now"
    if row.next_event_time is None:
        return "paused"
    return f"in {table.format_duration(_whole_seconds(row.next_event_time - at))}"


def _whole_seconds(duration: timedelta) -> timedelta:
    """Rounded up: what is due in half a second is not due in 0."""
    second = timedelta(seconds=1)
    return -(-duration // second) * second
