"""`sentinel coverage`: what no configuration watches, and what several do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import Output
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.pulse.coverage import Coverage, Watch, survey
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable

_SHOWN = 20
"""How much of a long list a table shows; the rest is for scripts."""


class FailOn(StrEnum):
    """What a pipeline does not put up with."""

    GAPS = "gaps"
    OVERLAPS = "overlaps"
    ANY = "any"

    def applies(self, coverage: Coverage) -> bool:
        """Whether it is there."""
        has_gaps = bool(coverage.gaps) and self is not FailOn.OVERLAPS
        has_overlaps = bool(coverage.overlaps) and self is not FailOn.GAPS
        return has_gaps or has_overlaps


@click.command
@click.option(
    "--config",
    "configs",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="The settings file of a Sentinel; once for each that runs.",
)
@click.option(
    "--fail-on",
    type=click.Choice([choice.value for choice in FailOn]),
    callback=lambda context, parameter, value: None if value is None else FailOn(value),
    help="Exit with 1 where there are such; for pipelines.",
)
@options.set_option
@options.output_option
@options.log_options
def coverage(
    configs: Sequence[Path],
    fail_on: FailOn | None,
    sets: Sequence[str],
    output: Output,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Show what no configuration watches, and what several do.

    Reads the whole fleet once, without a selector, and asks each configuration's resource_selector about every
    resource. The configurations must watch the same resource type of the same API; how the API is reached (token,
    timeout, page size) is taken from the first. --set and the environment count for each of them.
    """
    loaded = [inspection.load(config, sets=sets, log_level=log_level, log_format=log_format) for config in configs]
    settings = [each.settings for each in loaded if each.settings is not None]
    if len(settings) < len(loaded):
        return ExitCode.MISCONFIGURED
    differences = _differences(configs, settings)
    if differences:
        click.echo("\n".join(differences), err=True)
        return ExitCode.MISCONFIGURED
    watches = [Watch(str(config), each.selector) for config, each in zip(configs, settings, strict=True)]

    async def look(session: InspectionSession) -> int:
        async with session.fleet(_unselected(settings[0])) as fleet:
            found = await survey(watches, fleet=fleet, progress=session.progress)
        session.progress.clear()
        session.warn_of_malformed(found.malformed)
        if output is Output.TABLE:
            for line in _lines(found.coverage, watches, settings[0].resource_type):
                click.echo(line)
        else:
            click.echo(options.encode(found.coverage, output))
        is_failure = fail_on is not None and fail_on.applies(found.coverage)
        return ExitCode.FAILURE if is_failure else ExitCode.SUCCESS

    return inspection.look(look, settings=settings[0], loaded=loaded)


def _unselected(settings: PulseSettings) -> PulseSettings:
    """The same for everything that there is; ids and labels are all that will be read of it."""
    return msgspec.structs.replace(settings, resource_selector=(), message_data={"resource_id": ".id"})


def _differences(configs: Sequence[Path], settings: Sequence[PulseSettings]) -> list[str]:
    """Why these configurations cannot be compared: they are not about the same resources."""
    differences = []
    for key, values, remedy in (
        ("resource_type", [each.resource_type for each in settings], ""),
        (
            "hyperfleet_api.endpoint",
            [each.hyperfleet_api.endpoint for each in settings],
            "; if all of them lead to the same API, choose one by --set hyperfleet_api.endpoint=URL",
        ),
    ):
        if len(set(values)) > 1:
            got = ", ".join(f"{value} ({config})" for config, value in zip(configs, values, strict=True))
            differences.append(printable(f"{key}: expected the same in every configuration, got {got}{remedy}"))
    return differences


def _lines(coverage: Coverage, watches: Sequence[Watch], resource_type: str) -> Iterator[str]:
    yield from table.render(
        ("CONFIG", "SELECTOR", "MATCHED"),
        [
            (watch.file, watch.selector.shard, f"{each.matched:,}")
            for watch, each in zip(watches, coverage.configs, strict=True)
        ],
        numbers=("MATCHED",),
    )
    yield ""
    yield (
        f"{coverage.total:,} {resource_type}: {len(coverage.gaps):,} watched by none, "
        f"{len(coverage.overlaps):,} by more than one"
    )
    if coverage.overlaps:
        yield from ("", *_overlaps(coverage))
    if coverage.gaps:
        yield from ("", *_gaps(coverage))
        yield from ("", *_suggestions(coverage))


def _overlaps(coverage: Coverage) -> Iterator[str]:
    together = Counter(overlap.configs for overlap in coverage.overlaps)
    first = {overlap.configs: overlap.id for overlap in reversed(coverage.overlaps)}
    yield from table.render(
        ("WATCHED TOGETHER BY", "RESOURCES", "SUCH AS"),
        [
            (" + ".join(configs), f"{count:,}", first[configs])
            for configs, count in sorted(together.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
        ],
        numbers=("RESOURCES",),
    )


def _gaps(coverage: Coverage) -> Iterator[str]:
    shown = ", ".join(map(printable, coverage.gaps[:_SHOWN]))
    more = len(coverage.gaps) - _SHOWN
    yield f"watched by none: {shown}{f' and {more:,} more' if more > 0 else ''}"
    if coverage.gap_labels:
        yield ""
        yield from table.render(
            ("LABEL", "VALUE", "RESOURCES"),
            [(each.label, each.value, f"{each.resources:,}") for each in coverage.gap_labels[:_SHOWN]],
            numbers=("RESOURCES",),
        )
        if len(coverage.gap_labels) > _SHOWN:
            yield f"and {len(coverage.gap_labels) - _SHOWN:,} labels more"


def _suggestions(coverage: Coverage) -> Iterator[str]:
    several = len(coverage.suggestions) > 1
    if several:
        yield "No single selector fits all of them. To cover them, run one more Sentinel with each of:"
    elif coverage.suggestions:
        yield "To cover them, run one more Sentinel with:"
    for suggestion in coverage.suggestions:
        also = f", and {suggestion.overlaps:,} that are watched already" if suggestion.overlaps else ""
        yield ""
        yield f"# {suggestion.covers:,} of {len(coverage.gaps):,}{also}"
        yield options.encode({"resource_selector": suggestion.resource_selector}, Output.YAML)
    if coverage.unsuggested:
        if coverage.suggestions:
            yield ""
        yield (
            f"For {coverage.unsuggested:,} of them no label helps: give them one, "
            "or run one Sentinel with an empty resource_selector, which watches everything."
        )
