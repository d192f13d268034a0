"""`sentinel check`: validates a configuration, or shows the effective settings, without running it.

Made for editors and pipelines: stdout has one line for each problem, in the format of compiler messages, and
nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.pulse import settings as pulse
from sentinel.runtime.settings.broker import load_broker
from sentinel.runtime.settings.report import EffectiveSetting, SettingsProblem, printable


class CheckResult(msgspec.Struct, frozen=True):
    """The output for scripts."""

    valid: bool
    problems: tuple[SettingsProblem, ...]


class Effective(msgspec.Struct, frozen=True):
    """The output of `--show` for scripts."""

    settings: tuple[EffectiveSetting, ...]


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The settings file of a Sentinel.")
@options.broker_option
@click.option("--show", is_flag=True, help="Print the effective settings and their origins; secrets are masked.")
@options.set_option
@options.output_option
@options.log_options
def check(
    config: Path | None,
    broker_config: Path | None,
    show: bool,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> None:
    """Check configuration files, and print every problem with its position.

    Environment variables apply as they do in `run`. Exits with 0 if everything is valid, otherwise with 2.
    """
    if config is None and broker_config is None:
        raise click.UsageError("expected --config, --broker-config, or both")
    if config is None and sets:
        raise click.UsageError("--set expects --config")
    problems: list[SettingsProblem] = []
    warnings: list[str] = []
    entries: list[EffectiveSetting] = []
    if config is not None:
        sentinel = pulse.load(file=config, environ=os.environ, sets=sets, overrides=log_overrides)
        problems += sentinel.problems
        warnings += sentinel.warnings
        entries += sentinel.entries
    broker = load_broker(source=broker_config, environ=os.environ)
    problems += broker.problems
    warnings += broker.warnings
    entries += broker.entries

    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if show and not problems:
        _print(Effective(tuple(entries)), output, lines=_settings_table(entries))
    else:
        _print(CheckResult(not problems, tuple(problems)), output, lines=map(str, problems))
    if problems:
        raise click.exceptions.Exit(2)
    if output is OutputFormat.TABLE and not show:
        for file in (config, broker_config):
            if file is not None:
                click.echo(printable(f"{file}: ok"), err=True)


def _print(result: CheckResult | Effective, output: OutputFormat, *, lines: Iterable[str]) -> None:
    for line in lines if output is OutputFormat.TABLE else [options.encode(result, output)]:
        click.echo(line)


def _settings_table(entries: Sequence[EffectiveSetting]) -> Iterator[str]:
    return table.render(("KEY", "VALUE", "ORIGIN"), [(entry.key, entry.value, entry.origin) for entry in entries])
