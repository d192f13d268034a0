"""`sentinel forecast`: what a configuration will send, and what it will cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import click

from sentinel.cli import options, table
from sentinel.cli.options import Output
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.core.pulse.decision import Reason
from sentinel.pulse.forecast import Forecast
from sentinel.pulse.forecast import forecast as forecast_fleet
from sentinel.pulse.forecast.calibration import EmptyFleet
from sentinel.pulse.forecast.projection import Estimate
from sentinel.runtime import durations
from sentinel.runtime.clock import SystemClock
from sentinel.runtime.process import ExitCode

_SHORTEST = timedelta(minutes=1)


def _duration(context: click.Context, parameter: click.Parameter, text: str) -> timedelta:
    try:
        duration = durations.parse(text)
    except ValueError as error:
        raise click.BadParameter(f'expected a duration such as 30s, got "{text}"') from error
    if duration < timedelta(0) or (parameter.name == "over" and duration < _SHORTEST):
        raise click.BadParameter(f'expected {"1m" if parameter.name == "over" else "0s"} or more, got "{text}"')
    return duration


@click.command
@inspection.config_option
@click.option("--fleet-size", type=click.IntRange(min=1), help="Say it for a fleet of this size, too.")
@click.option(
    "--answer-after",
    metavar="DURATION",
    default="1s",
    show_default=True,
    callback=_duration,
    help="How long adapters take from an event to their report.",
)
@click.option(
    "--over",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=_duration,
    help="The time to come that is rehearsed.",
)
@options.set_option
@options.output_option
@options.log_options
def forecast(
    config: Path,
    fleet_size: int | None,
    answer_after: timedelta,
    over: timedelta,
    sets: Sequence[str],
    output: Output,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Say what a configuration will send, and what it will cost.

    Walks the fleet a few times to measure what it takes to watch it, rehearses the time to come with the decisions
    and the pacing of `sentinel run`, and projects both to the size that is asked about. Nothing is published, and
    broker settings are not needed. Exits with 1 if the fleet cannot be read, or is empty.
    """
    loaded = inspection.load(config, sets=sets, log_level=log_level, log_format=log_format)
    if loaded.settings is None:
        return ExitCode.MISCONFIGURED
    settings = loaded.settings

    async def look(session: InspectionSession) -> int:
        async with session.fleet(settings) as fleet:
            try:
                answer, malformed = await forecast_fleet(
                    settings,
                    fleet=fleet,
                    clock=SystemClock(),
                    size=fleet_size,
                    answer_after=answer_after,
                    lasting=over,
                    progress=session.progress,
                )
            except EmptyFleet as empty:
                return session.refuse(str(empty))
        session.progress.clear()
        session.warn_of_malformed(malformed)
        if output is Output.TABLE:
            for line in _lines(answer, over, settings.poll_interval):
                click.echo(line)
        else:
            click.echo(options.encode(answer, output))
        return ExitCode.SUCCESS

    return inspection.look(look, settings=settings, loaded=[loaded])


def _lines(answer: Forecast, over: timedelta, poll_interval: timedelta) -> Iterator[str]:
    present = answer.fleet
    yield (
        f"{present.resources:,} {answer.resource_type} (selector: {answer.shard}): {present.ready:,} ready, "
        f"{present.not_ready:,} not; over {table.in_words(over)}, if adapters answer and nobody changes anything"
    )
    outlooks = [answer.now] if answer.at_size is None else [answer.now, answer.at_size]
    reasons = [reason for reason in Reason if any(reason in each.events_per_minute_by_reason for each in outlooks)]
    columns = [_figures(outlook, reasons) for outlook in outlooks]
    header = ("", *(f"{outlook.resources:,} RESOURCES" for outlook in outlooks))
    yield ""
    yield from table.render(
        header, [(what, *(column[what] for column in columns)) for what in columns[0]], numbers=header[1:]
    )
    yield ""
    every = durations.render(poll_interval)
    if answer.largest_fleet is None:
        yield f"nothing that was measured keeps one process from polling every {every}"
    else:
        yield f"one process keeps polling every {every} up to about {_about(answer.largest_fleet)} resources"


def _figures(outlook: Estimate, reasons: Iterable[Reason]) -> dict[str, str]:
    by_reason = outlook.events_per_minute_by_reason
    return {
        "events a minute": table.count(outlook.events_per_minute),
        **{f"  {reason}": table.count(by_reason.get(reason, 0.0)) for reason in reasons},
        "events in the busiest minute": table.count(round(outlook.busiest_minute)),
        "events at the first poll": table.count(round(outlook.events_at_first_poll)),
        "API requests a second": table.count(outlook.api_requests_per_second),
        "CPU": f"{table.count(outlook.cpu_millicores)}m",
        "memory": f"{outlook.memory_mebibytes:,.0f} MiB",
        "time for a cycle": f"{outlook.cycle_seconds:,.2f} s",
        "keeps the poll interval": "yes" if outlook.is_in_time else "no",
    }


def _about(number: int) -> str:
    """Two figures of it: more would be made up."""
    magnitude = 10 ** max(0, len(str(number)) - 2)
    return f"{number // magnitude * magnitude:,}"
