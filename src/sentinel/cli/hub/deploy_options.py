"""The options of `sentinel hub deploy` that describe a deployment, and the request that they make.

An option that was not given is left out of the request: its default is the hub's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import click

from sentinel.core import labels
from sentinel.core.hub.deployment import Metric, OfflinePolicy, Strategy, parse_count
from sentinel.core.hub.versions import VersionName
from sentinel.runtime import durations
from sentinel.runtime.settings.report import quoted

_CRITERION: Final = re.compile(r"\s*([a-z0-9_]+)\s*<=\s*([0-9]*\.?[0-9]+)\s*(x?)\s*", re.ASCII)


def _count(context: click.Context, parameter: click.Parameter, text: str | None) -> int | str | None:
    """Parse a number or a percentage."""
    if text is None:
        return None
    value = int(text) if text.isascii() and text.isdecimal() else text
    if parse_count(value) is None:
        raise click.BadParameter(f"expected a number from 1 on or a percentage such as 25%, got {quoted(text)}")
    return value


def _duration(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Check a duration, and leave its text as it is."""
    if text is None:
        return None
    try:
        is_valid = durations.parse(text) >= timedelta(0)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise click.BadParameter(f"expected a duration such as 30s, got {quoted(text)}")
    return text


def _selector(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        try:
            labels.parse(text)
        except labels.SelectorError as error:
            raise click.BadParameter(str(error)) from error
    return text


def _canaries(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | str | dict[str, str] | None:
    """Parse how many canaries there are, or which. A text that is not a count is a selector."""
    if text is None or text[:1].isdigit() or text.startswith("-"):
        return _count(context, parameter, text)
    selector = _selector(context, parameter, text)
    return None if selector is None else {"selector": selector}


def _criteria(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> list[dict[str, object]]:
    """Parse `error_rate<=0.01`, or `latency_p99_ms<=1.5x` for a ratio to the untouched instances."""
    found: list[dict[str, object]] = []
    for text in texts:
        match = _CRITERION.fullmatch(text)
        if match is None or match[1] not in list(Metric):
            names = ", ".join(Metric)
            raise click.BadParameter(
                f"expected METRIC<=VALUE such as error_rate<=0.01 or latency_p99_ms<=1.5x, with one of {names},"
                f" got {quoted(text)}"
            )
        found.append({"metric": match[1], "max_vs_baseline" if match[3] else "max": float(match[2])})
    return found


def _regions(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, object] | None:
    """Parse a label, and perhaps the order of its values."""
    if text is None:
        return None
    label, separator, rest = text.partition("=")
    values = [value.strip() for value in rest.split(",")] if separator else []
    if not label.strip() or not all(values):
        raise click.BadParameter(f"expected a label, or LABEL=VALUE,… such as region=eu,us, got {quoted(text)}")
    return {"label": label.strip(), "values": values}


def _strategy(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    return None if text is None else text.replace("-", "_")


_OPTIONS: Final = (
    click.option(
        "-l", "--selector", metavar="LABELS", callback=_selector, help="Instances with these labels, as tier=web."
    ),
    click.option("--instance", "ids", metavar="ID", multiple=True, help="An instance. May be repeated."),
    click.option(
        "--strategy",
        type=click.Choice([*(each.value for each in Strategy), "all-at-once"]),
        callback=_strategy,
        help="How instances are reached. Default: canary with an option of canaries, else rolling.",
    ),
    click.option(
        "--batch-size", metavar="COUNT", callback=_count, help="Instances in a batch, as 5 or 25%. Default: 1."
    ),
    click.option(
        "--batch-delay", metavar="DURATION", callback=_duration, help="Wait after a batch. Default: 30s."
    ),
    click.option(
        "--failure-threshold",
        metavar="COUNT",
        callback=_count,
        help="Fail, and roll back, when as many instances have failed. Default: 1.",
    ),
    click.option(
        "--min-healthy-time",
        metavar="DURATION",
        callback=_duration,
        help="How long an instance must stay healthy before it counts. Default: 0s.",
    ),
    click.option(
        "--max-unavailable",
        metavar="COUNT",
        callback=_count,
        help="Begin no batch while as many targets are not online.",
    ),
    click.option(
        "--canary",
        "canaries",
        metavar="COUNT|LABELS",
        callback=_canaries,
        help="Canaries: 2, 10% or labels such as tier=canary. Default: 10%.",
    ),
    click.option(
        "--canary-duration",
        metavar="DURATION",
        callback=_duration,
        help="How long canaries are watched. Default: 5m.",
    ),
    click.option(
        "--canary-interval",
        metavar="DURATION",
        callback=_duration,
        help="How often their metrics are analysed. Default: 30s.",
    ),
    click.option(
        "--canary-step",
        "steps",
        metavar="COUNT",
        multiple=True,
        callback=lambda context, parameter, texts: [_count(context, parameter, each) for each in texts],
        help="So many canaries in all after another step. May be repeated.",
    ),
    click.option(
        "--criterion",
        "criteria",
        metavar="METRIC<=VALUE",
        multiple=True,
        callback=_criteria,
        help="A limit for canaries: error_rate<=0.01, latency_p50_ms<=80, or latency_p99_ms<=1.5x for a ratio to"
        " untouched instances. May be repeated. Default: error_rate<=0.05.",
    ),
    click.option(
        "--min-requests",
        type=click.IntRange(min=0),
        help="Requests that all canaries together need for a verdict. Default: 100.",
    ),
    click.option(
        "--offline",
        type=click.Choice([each.value for each in OfflinePolicy]),
        help="How to treat instances that are offline. Default: later, when they return.",
    ),
    click.option("--queue", is_flag=True, help="Wait for other deployments of the same instances."),
    click.option("--spread-by", metavar="LABEL", help="Give each batch its share of every value, as of zone."),
    click.option(
        "--regions",
        metavar="LABEL[=VALUE,…]",
        callback=_regions,
        help="One region after the other, by a label, as region=eu,us; other values come last.",
    ),
    click.option(
        "--progress-deadline", metavar="DURATION", callback=_duration, help="Fail if the whole takes longer."
    ),
)

_ORDER: Final = {"spread_by": "spread_by", "regions": "regions"}
_ROLLING: Final = {
    "batch_size": "batch_size",
    "batch_delay": "batch_delay",
    "failure_threshold": "failure_threshold",
    "min_healthy_time": "min_healthy_time",
    "max_unavailable": "max_unavailable",
}
_CANARY: Final = {
    "canaries": "instances",
    "canary_duration": "duration",
    "canary_interval": "interval",
    "steps": "steps",
    "criteria": "success_criteria",
    "min_requests": "min_requests",
}
"""The parameters of the command, and the fields of the request."""


def deployment_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options, as the parameters that `request_body` reads."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def request_body(version: VersionName, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request. Raises `UsageError` for options that do not go together."""
    ids, selector = list(given["ids"]), given["selector"]
    if bool(ids) == (selector is not None):
        raise click.UsageError("expected either --selector or --instance")
    rolling, canary = _fields(given, _ROLLING), _fields(given, _CANARY)
    strategy = given["strategy"] or (Strategy.CANARY if canary else Strategy.ROLLING)
    if canary and strategy != Strategy.CANARY:
        raise click.UsageError(f"expected --strategy canary with the options of canaries, got {strategy}")
    if rolling and strategy == Strategy.ALL_AT_ONCE:
        raise click.UsageError("expected no options of batches with --strategy all_at_once, which has one batch")
    body: dict[str, Any] = {
        "config_id": version.config_id,
        "version": version.number,
        "targets": {"ids": ids} if ids else {"selector": selector},
        "strategy": strategy,
        "queue": given["queue"],
        "offline": given["offline"],
        "progress_deadline": given["progress_deadline"],
        "order": _fields(given, _ORDER),
        "rolling": rolling,
        "canary": canary,
    }
    return {name: value for name, value in body.items() if value not in (None, {}, False)}


def _fields(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {field: given[name] for name, field in names.items() if given[name] not in (None, [])}
