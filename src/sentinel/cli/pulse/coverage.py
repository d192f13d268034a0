"""`sentinel coverage`: the resources that no configuration watches, and those that several watch."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.cli.pulse import inspection
from sentinel.cli.pulse.covered_configs import ConfigLoader, CoveredConfig, CoveredConfigs, joined
from sentinel.cli.pulse.inspection import InspectionSession
from sentinel.cli.wiring.kube import kubeconfig_option, list_sentinel_configs, namespace_option
from sentinel.cli.wiring.serve import refuse
from sentinel.core.labels import Selector
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.kube import KubeError
from sentinel.pulse.coverage import ConfigSelector, Coverage, Suggestion, find_coverage
from sentinel.pulse.definition import PulseDefinition
from sentinel.runtime.process import ExitCode
from sentinel.runtime.secret_text import mask_secret_text
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
    multiple=True,
    type=click.Path(path_type=Path),
    help="The settings file of a Sentinel, or a manifest with SentinelConfigs; once for each file.",
)
@click.option("--kube", is_flag=True, help="Also compare the SentinelConfigs of a cluster.")
@namespace_option("SentinelConfigs")
@kubeconfig_option
@click.option("--resource-type", metavar="TYPE", help="Compare only configurations that watch this resource type.")
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
    kube: bool,
    namespace: str | None,
    kubeconfig: Path | None,
    resource_type: str | None,
    fail_on: FailOn | None,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> int:
    """Show resources that no configuration watches, and resources that several watch.

    Reads the whole fleet once and matches every resource against the selector of each configuration. A manifest
    may hold several SentinelConfigs. The configurations must watch the same resource type of the same API. Token,
    timeout and page size are taken from the first. --set and the environment apply to all of them; of
    SentinelConfigs they replace only the connection, such as hyperfleet_api.endpoint. With --kube, the
    SentinelConfigs are read from a namespace of a cluster.
    """
    if not configs and not kube:
        raise click.UsageError("expected --config or --kube")
    loader = ConfigLoader(environ=os.environ, sets=sets, log_overrides=log_overrides)
    loaded = [loader.load_files(configs)]
    if kube:
        try:
            objects = asyncio.run(list_sentinel_configs(kubeconfig=kubeconfig, namespace=namespace))
        except Misconfigured as error:
            return refuse([error])
        except (KubeError, Unavailable) as error:
            click.echo(mask_secret_text(f"the SentinelConfigs could not be read: {error}"), err=True)
            return ExitCode.FAILURE
        loaded.append(loader.load_objects(objects))
    return run_coverage(joined(loaded), resource_type=resource_type, fail_on=fail_on, output=output)


def run_coverage(
    loaded: CoveredConfigs, *, resource_type: str | None, fail_on: FailOn | None, output: OutputFormat
) -> int:
    """Compare configurations with the fleet, print the result, and return the exit code."""
    inspection.print_problems(loaded.problems)
    if loaded.problems:
        return ExitCode.MISCONFIGURED
    configs = [each for each in loaded.configs if resource_type in (None, each.definition.resource_type)]
    differences = _differences(configs) if configs else [_nothing_to_compare(resource_type)]
    if differences:
        click.echo("\n".join(differences), err=True)
        return ExitCode.MISCONFIGURED
    first = configs[0]
    selectors = [ConfigSelector(each.name, each.definition.selector) for each in configs]

    async def inspect(session: InspectionSession) -> int:
        async with session.open_fleet(_without_selector(first.definition)) as fleet:
            result = await find_coverage(selectors, fleet=fleet, progress=session.progress)
        session.warn_about_malformed(result.malformed)
        inspection.print_result(result.coverage, output, lines=_lines(result.coverage, configs))
        is_failure = fail_on is not None and fail_on.applies(result.coverage)
        return ExitCode.FAILURE if is_failure else ExitCode.SUCCESS

    return inspection.run_inspection(
        inspect, log_settings=first.log, secrets=loaded.secrets, warnings=loaded.warnings
    )


def _without_selector(definition: PulseDefinition) -> PulseDefinition:
    """The pulse for the whole fleet, reading ids and labels only."""
    return msgspec.structs.replace(definition, selector=Selector(), message_data={"resource_id": ".id"})


def _nothing_to_compare(resource_type: str | None) -> str:
    what = "configuration" if resource_type is None else f"configuration of {resource_type}"
    return f"expected at least one {what}, got none"


def _differences(configs: Sequence[CoveredConfig]) -> list[str]:
    """Why these configurations cannot be compared: they watch different resources."""
    differences = []
    for key, values, remedy in (
        (
            "resource_type",
            [each.definition.resource_type for each in configs],
            "; choose one with --resource-type TYPE",
        ),
        (
            "hyperfleet_api.endpoint",
            [each.definition.api.endpoint for each in configs],
            "; if they are the same API, choose one with --set hyperfleet_api.endpoint=URL",
        ),
    ):
        if len(set(values)) > 1:
            got = ", ".join(f"{value} ({config.name})" for config, value in zip(configs, values, strict=True))
            differences.append(printable(f"{key}: expected the same in every configuration, got {got}{remedy}"))
    return differences


def _lines(coverage: Coverage, configs: Sequence[CoveredConfig]) -> Iterator[str]:
    yield from table.render(
        ("CONFIG", "SELECTOR", "MATCHED"),
        [
            (config.name, config.definition.shard, f"{each.matched:,}")
            for config, each in zip(configs, coverage.configs, strict=True)
        ],
        numbers=("MATCHED",),
    )
    yield ""
    yield (
        f"{coverage.total:,} {configs[0].definition.resource_type}: {len(coverage.gaps):,} watched by none, "
        f"{len(coverage.overlaps):,} by more than one"
    )
    if coverage.overlaps:
        yield from ("", *_overlaps(coverage))
    if coverage.gaps:
        yield from ("", *_gaps(coverage))
        is_kubernetes = all(config.is_sentinel_config for config in configs)
        yield from ("", *_suggestions(coverage, is_kubernetes=is_kubernetes))


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


def _suggestions(coverage: Coverage, *, is_kubernetes: bool) -> Iterator[str]:
    several = len(coverage.suggestions) > 1
    if several:
        yield "No single selector fits all of them. To cover them, run one more Sentinel with each of:"
    elif coverage.suggestions:
        yield "To cover them, run one more Sentinel with:"
    for suggestion in coverage.suggestions:
        also = f", and {suggestion.overlaps:,} already watched" if suggestion.overlaps else ""
        yield ""
        yield f"# {suggestion.covers:,} of {len(coverage.gaps):,}{also}"
        yield options.encode(_selector_of(suggestion, is_kubernetes=is_kubernetes), OutputFormat.YAML)
    if coverage.unsuggested:
        if coverage.suggestions:
            yield ""
        selector = "shardSelector" if is_kubernetes else "resource_selector"
        yield (
            f"For {coverage.unsuggested:,} of them no label helps: give them one, "
            f"or run one Sentinel with an empty {selector}, which watches everything."
        )


def _selector_of(suggestion: Suggestion, *, is_kubernetes: bool) -> dict[str, object]:
    """The selector in the words of the configurations, to be pasted into another."""
    if not is_kubernetes:
        return {"resource_selector": suggestion.resource_selector}
    return {"shardSelector": {"matchLabels": {each.label: each.value for each in suggestion.resource_selector}}}
