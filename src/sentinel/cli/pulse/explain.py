"""`sentinel explain`: why each resource would get an event now, or would not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.core.pulse.pacing import PacingVerdict
from sentinel.core.times import timestamp
from sentinel.pulse.explain import ExplainedResource, Explanation
from sentinel.pulse.explain import explain as explain_fleet
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.log import Log
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable


def _parse_time(context: click.Context, parameter: click.Parameter, text: str | None) -> datetime | None:
    try:
        # The same parser as for resources, so that every time they show is accepted.
        time = None if text is None else msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
        return None if time is None else time.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as error:
        raise click.BadParameter(f'expected a time such as 2025-10-21T12:00:00Z, got "{text}"') from error


@click.command
@inspection.config_option
@click.option("--id", "resource_id", metavar="ID", help="Explain this resource only, with its data.")
@click.option("--at", metavar="TIME", callback=_parse_time, help="Explain for this time (RFC 3339). Default: now.")
@options.set_option
@options.output_option
@options.log_options
def explain(
    config: Path,
    resource_id: str | None,
    at: datetime | None,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> int:
    """Explain why each resource would get an event now, or would not.

    Runs one cycle of `sentinel run` and publishes nothing. The decisions are those before pacing and before
    max_events_per_second. Broker settings are not needed.

    Exits with 1 if the fleet cannot be read, or if no watched resource has the id.
    """

    async def inspect(session: InspectionSession, settings: PulseSettings) -> int:
        async with session.open_fleet(settings.definition) as fleet:
            explanation = await explain_fleet(
                settings.definition,
                fleet=fleet,
                at=at or SystemClock().now(),
                resource_id=resource_id,
                progress=session.progress,
            )
        is_single = resource_id is not None
        session.progress.clear()
        if output is not OutputFormat.TABLE:
            session.warn_about_malformed(explanation.malformed)
        if not is_single:
            _log_warnings(explanation.resources, session.log)
        inspection.print_result(explanation, output, lines=_lines(explanation, is_single=is_single))
        return ExitCode.SUCCESS

    return inspection.inspect_config(inspect, config, sets=sets, log_overrides=log_overrides)


def _log_warnings(resources: Sequence[ExplainedResource], log: Log) -> None:
    """Log each warning once, with the number of resources."""
    first: dict[str, str] = {}
    count = Counter[str]()
    for resource in resources:
        for warning in resource.warnings:
            first.setdefault(warning, resource.id)
            count[warning] += 1
    for warning, resource_id in first.items():
        log.warning("resource.warning", problem=warning, resources=count[warning], first_resource_id=resource_id)


def _lines(explanation: Explanation, *, is_single: bool) -> Iterator[str]:
    """The table: a row for each resource, then a summary."""
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
                    "all, if no resource changes",
                    f"{summary.fetched:,}",
                    table.format_number(summary.events_per_minute),
                ),
            ],
            numbers=("RESOURCES", "EVENTS PER MINUTE"),
        )
    if explanation.malformed:
        yield ""
        yield f"{len(explanation.malformed):,} could not be read and get no events:"
        yield from table.render(
            ("ID", "POSITION", "PROBLEM"),
            [(item.id or "unknown", item.position, item.message) for item in explanation.malformed],
        )


def _age(row: ExplainedResource, at: datetime) -> str:
    if row.last_updated_time is None:
        return "never"
    age = at - row.last_updated_time
    return f"{table.format_duration(-age)} ahead" if age < timedelta(0) else table.format_duration(age)


def _next(row: ExplainedResource, at: datetime) -> str:
    if row.decision is PacingVerdict.PUBLISH:
        return "now"
    if row.next_event_time is None:
        return "paused"
    return f"in {table.format_duration(_whole_seconds(row.next_event_time - at))}"


def _whole_seconds(duration: timedelta) -> timedelta:
    """Round up: an event due in half a second is not due in 0."""
    second = timedelta(seconds=1)
    return -(-duration // second) * second
