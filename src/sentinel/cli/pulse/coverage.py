"""`sentinel coverage`: the resources that no configuration watches, and those that several watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.pulse.coverage import ConfigSelector, Coverage, find_coverage
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime.process import ExitCode
from sentinel.runtime.settings.report import printable

_MAX_SHOWN = 20
"""Rows that a table shows of a long list; JSON and YAML have all."""


class FailOn(StrEnum):
    """What makes the command fail."""

    GAPS = "gaps"
    OVERLAPS = "overlaps"
    ANY = "any"

    def applies(self, coverage: Coverage) -> bool:
        """Whether the coverage has such resources."""
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
    help="The settings file of a Sentinel; once for each Sentinel.",
)
@click.option(
    "--fail-on",
    type=click.Choice([choice.value for choice in FailOn]),
    callback=lambda context, parameter, value: None if value is None else FailOn(value),
    help="Exit with 1 if there are any; for pipelines.",
)
@options.set_option
@options.output_option
@options.log_options
def coverage(
    configs: Sequence[Path],
    fail_on: FailOn | None,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> int:
    """Show resources that no configuration watches, and resources that several watch.

    Reads the whole fleet once and matches every resource against the resource_selector of each configuration. The
    configurations must watch the same resource type of the same API. Token, timeout and page size are taken from
    the first. --set and the environment apply to all of them.
    """
    loaded = [inspection.load_settings(config, sets=sets, log_overrides=log_overrides) for config in configs]
    settings = [each.settings for each in loaded if each.settings is not None]
    if len(settings) < len(loaded):
        return ExitCode.MISCONFIGURED
    differences = _differences(configs, settings)
    if differences:
        click.echo("\n".join(differences), err=True)
        return ExitCode.MISCONFIGURED
    selectors = [
        ConfigSelector(str(config), each.selector) for config, each in zip(configs, settings, strict=True)
    ]

    async def inspect(session: InspectionSession) -> int:
        async with session.open_fleet(_without_selector(settings[0])) as fleet:
            result = await find_coverage(selectors, fleet=fleet, progress=session.progress)
        session.warn_about_malformed(result.malformed)
        lines = _lines(result.coverage, selectors, settings[0].resource_type)
        inspection.print_result(result.coverage, output, lines=lines)
        is_failure = fail_on is not None and fail_on.applies(result.coverage)
        return ExitCode.FAILURE if is_failure else ExitCode.SUCCESS

    return inspection.run_inspection(inspect, settings=settings[0], loaded=loaded)


def _without_selector(settings: PulseSettings) -> PulseSettings:
    """The settings for the whole fleet, reading ids and labels only."""
    return msgspec.structs.replace(settings, resource_selector=(), message_data={"resource_id": ".id"})


def _differences(configs: Sequence[Path], settings: Sequence[PulseSettings]) -> list[str]:
    """Why these configurations cannot be compared: they watch different resources."""
    differences = []
    for key, values, remedy in (
        ("resource_type", [each.resource_type for each in settings], ""),
        (
            "hyperfleet_api.endpoint",
            [each.hyperfleet_api.endpoint for each in settings],
            "; if they are the same API, choose one with --set hyperfleet_api.endpoint=URL",
        ),
    ):
        if len(set(values)) > 1:
            got = ", ".join(f"{value} ({config})" for config, value in zip(configs, values, strict=True))
            differences.append(printable(f"{key}: expected the same in every configuration, got {got}{remedy}"))
    return differences


def _lines(coverage: Coverage, configs: Sequence[ConfigSelector], resource_type: str) -> Iterator[str]:
    yield from table.render(
        ("CONFIG", "SELECTOR", "MATCHED"),
        [
            (config.file, config.selector.shard, f"{each.matched:,}")
            for config, each in zip(configs, coverage.configs, strict=True)
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
    counts = Counter(overlap.configs for overlap in coverage.overlaps)
    first = {overlap.configs: overlap.id for overlap in reversed(coverage.overlaps)}
    yield from table.render(
        ("WATCHED TOGETHER BY", "RESOURCES", "SUCH AS"),
        [
            (" + ".join(configs), f"{count:,}", first[configs])
            for configs, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_SHOWN]
        ],
        numbers=("RESOURCES",),
    )


def _gaps(coverage: Coverage) -> Iterator[str]:
    shown = ", ".join(map(printable, coverage.gaps[:_MAX_SHOWN]))
    more = len(coverage.gaps) - _MAX_SHOWN
    yield f"watched by none: {shown}{f' and {more:,} more' if more > 0 else ''}"
    if coverage.gap_labels:
        yield ""
        yield from table.render(
            ("LABEL", "VALUE", "RESOURCES"),
            [(each.label, each.value, f"{each.resources:,}") for each in coverage.gap_labels[:_MAX_SHOWN]],
            numbers=("RESOURCES",),
        )
        if len(coverage.gap_labels) > _MAX_SHOWN:
            yield f"and {len(coverage.gap_labels) - _MAX_SHOWN:,} more labels"


def _suggestions(coverage: Coverage) -> Iterator[str]:
    several = len(coverage.suggestions) > 1
    if several:
        yield "No single selector fits all of them. To cover them, run one more Sentinel with each of:"
    elif coverage.suggestions:
        yield "To cover them, run one more Sentinel with:"
    for suggestion in coverage.suggestions:
        also = f", and {suggestion.overlaps:,} already watched" if suggestion.overlaps else ""
        yield ""
        yield f"# {suggestion.covers:,} of {len(coverage.gaps):,}{also}"
        yield options.encode({"resource_selector": suggestion.resource_selector}, OutputFormat.YAML)
    if coverage.unsuggested:
        if coverage.suggestions:
            yield ""
        yield (
            f"For {coverage.unsuggested:,} of them no label helps: give them one, "
            "or run one Sentinel with an empty resource_selector, which watches everything."
        )
