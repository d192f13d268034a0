"""`sentinel forecast`: what a configuration will publish, and what it will cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.core.pulse.decision import Reason
from sentinel.pulse.forecast import Forecast
from sentinel.pulse.forecast import forecast as forecast_fleet
from sentinel.pulse.forecast.estimate import Estimate
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import durations
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.log import LogLevel
from sentinel.runtime.process import ExitCode

_MIN_DURATION = timedelta(minutes=1)


def _duration(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    try:
        duration = durations.parse(text)
    except ValueError as error:
        raise click.BadParameter(f'expected a duration such as 30s, got "{text}"') from error
    if duration < timedelta(0) or (parameter.name == "over" and duration < _MIN_DURATION):
        raise click.BadParameter(f'expected {"1m" if parameter.name == "over" else "0s"} or more, got "{text}"')
    return duration


_duration_option = partial(click.option, metavar="DURATION", show_default=True, callback=_duration)


@click.command
@inspection.config_option
@click.option("--fleet-size", type=click.IntRange(min=1), help="Also estimate for a fleet of this size.")
@_duration_option("--answer-after", default="1s", help="How long adapters take from an event to their report.")
@_duration_option("--over", default="1h", help="How much time to simulate.")
@options.set_option
@options.output_option
@options.log_options
def forecast(
    config: Path,
    fleet_size: int | None,
    answer_after: timedelta,
    over: timedelta,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> int:
    """Forecast what a configuration will publish, and what it will cost.

    Walks the fleet a few times to measure the cost of watching it, simulates the decisions and the pacing of
    `sentinel run`, and projects both to the requested fleet size. Publishes nothing and needs no broker settings.
    Exits with 1 if the fleet cannot be read, or is empty.
    """

    async def inspect(session: InspectionSession, settings: PulseSettings) -> int:
        async with session.open_fleet(settings.definition) as fleet:
            result, malformed = await forecast_fleet(
                settings.definition,
                fleet=fleet,
                clock=SystemClock(),
                size=fleet_size,
                answer_after=answer_after,
                duration=over,
                logs_events=settings.log.level in (LogLevel.DEBUG, LogLevel.INFO),
                progress=session.progress,
            )
        session.warn_about_malformed(malformed)
        inspection.print_result(result, output, lines=_lines(result, over, settings.poll_interval))
        return ExitCode.SUCCESS

    return inspection.inspect_config(inspect, config, sets=sets, log_overrides=log_overrides)


def _lines(result: Forecast, over: timedelta, poll_interval: timedelta) -> Iterator[str]:
    fleet = result.fleet
    yield (
        f"{fleet.resources:,} {result.resource_type} (selector: {result.shard}): {fleet.ready:,} ready, "
        f"{fleet.not_ready:,} not; over {table.format_duration(over)}, if adapters report and no spec changes"
    )
    estimates = [result.now] if result.at_size is None else [result.now, result.at_size]
    reasons = [
        reason for reason in Reason if any(reason in each.events_per_minute_by_reason for each in estimates)
    ]
    columns = [_figures(estimate, reasons) for estimate in estimates]
    header = ("", *(f"{estimate.resources:,} RESOURCES" for estimate in estimates))
    yield ""
    yield from table.render(
        header, [(name, *(column[name] for column in columns)) for name in columns[0]], numbers=header[1:]
    )
    yield ""
    every = durations.render(poll_interval)
    if result.largest_fleet is None:
        yield f"one process keeps polling every {every} at any fleet size, by these measurements"
    else:
        yield f"one process keeps polling every {every} up to about {_about(result.largest_fleet)} resources"


def _figures(estimate: Estimate, reasons: Iterable[Reason]) -> dict[str, str]:
    by_reason = estimate.events_per_minute_by_reason
    return {
        "events a minute": table.format_number(estimate.events_per_minute),
        **{f"  {reason}": table.format_number(by_reason.get(reason, 0.0)) for reason in reasons},
        "events in the busiest minute": table.format_number(round(estimate.busiest_minute)),
        "events at the first poll": table.format_number(round(estimate.events_at_first_poll)),
        "API requests a second": table.format_number(estimate.api_requests_per_second),
        "CPU": f"{table.format_number(estimate.cpu_millicores)}m",
        "memory": f"{estimate.memory_mebibytes:,.0f} MiB",
        "time for a cycle": f"{estimate.cycle_seconds:,.2f} s",
        "keeps the poll interval": "yes" if estimate.keeps_poll_interval else "no",
    }


def _about(number: int) -> str:
    """Round down to two significant digits."""
    magnitude = 10 ** max(0, len(str(number)) - 2)
    return f"{number // magnitude * magnitude:,}"
