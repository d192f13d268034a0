"""`sentinel check`: validates a configuration, or shows the effective settings, without running it.

Made for editors and pipelines: stdout has one line for each problem, in the format of compiler messages, and
nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from sentinel.cli import options, table
from sentinel.cli.options import OutputFormat
from sentinel.operator import manifests
from sentinel.operator.manifests import ManifestFile
from sentinel.pulse import settings as pulse
from sentinel.runtime.settings.broker import load_broker
from sentinel.runtime.settings.report import EffectiveSetting, Loaded, SettingsProblem, printable, sorted_problems


class CheckResult(msgspec.Struct, frozen=True):
    """The output for scripts."""

    valid: bool
    problems: tuple[SettingsProblem, ...]


class Effective(msgspec.Struct, frozen=True):
    """The output of `--show` for scripts."""

    settings: tuple[EffectiveSetting, ...]


@click.command()
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="The settings file of a Sentinel, or a manifest with SentinelConfigs; may be repeated.",
)
@options.broker_option
@click.option("--show", is_flag=True, help="Print the effective settings and their origins; secrets are masked.")
@options.set_option
@options.output_option
@options.log_options
def check(
    configs: Sequence[Path],
    broker_config: Path | None,
    show: bool,
    sets: Sequence[str],
    output: OutputFormat,
    log_overrides: Mapping[str, str],
) -> None:
    """Check configuration files, and print every problem with its position.

    A manifest may hold several SentinelConfigs, and other kinds of objects, which are passed over. Environment
    variables and --set apply to settings files as they do in `run`. Exits with 0 if everything is valid, otherwise
    with 2.
    """
    if not configs and broker_config is None:
        raise click.UsageError("expected --config, --broker-config, or both")
    found = [(file, manifests.read_file(file)) for file in configs]
    has_settings_file = any(manifest is None for _, manifest in found)
    if sets and not has_settings_file:
        raise click.UsageError("--set expects --config with the settings file of a Sentinel")
    checked = _Checked()
    for file, manifest in found:
        if manifest is None:
            loaded = pulse.load(file=file, environ=os.environ, sets=sets, overrides=log_overrides)
            checked.add(loaded, name=str(file) if len(found) > 1 else "")
    checked.add_manifests([manifest for _, manifest in found if manifest is not None])
    if has_settings_file or broker_config is not None:  # a SentinelConfig has its own broker
        checked.add(load_broker(source=broker_config, environ=os.environ))
    problems = list(dict.fromkeys(checked.problems))  # a bad variable is a problem of every file

    for warning in dict.fromkeys(checked.warnings):
        click.echo(f"warning: {warning}", err=True)
    if show and not problems:
        _print(Effective(tuple(checked.entries)), output, lines=_settings_table(checked.entries))
    else:
        _print(CheckResult(not problems, tuple(problems)), output, lines=map(str, problems))
    if problems:
        raise click.exceptions.Exit(2)
    if output is OutputFormat.TABLE and not show:
        for each in (*configs, broker_config):
            if each is not None:
                click.echo(printable(f"{each}: ok"), err=True)


class _Checked:
    """What was found in all files."""

    def __init__(self) -> None:
        self.problems: list[SettingsProblem] = []
        self.warnings: list[str] = []
        self.entries: list[EffectiveSetting] = []

    def add(self, loaded: Loaded[Any], *, name: str = "") -> None:
        """Add settings. `name` tells them from others with the same keys."""
        self.problems += loaded.problems
        self.warnings += [printable(f"{name}: {text}") if name else text for text in loaded.warnings]
        self.entries += [
            msgspec.structs.replace(entry, key=f"{name}#{entry.key}") if name else entry
            for entry in loaded.entries
        ]

    def add_manifests(self, files: Sequence[ManifestFile]) -> None:
        """Add all SentinelConfigs, and compare them with each other."""
        configs = [config for file in files for loaded in file.configs if (config := loaded.settings) is not None]
        for file in files:
            self.problems += sorted_problems(
                (*file.problems, *(problem for loaded in file.configs for problem in loaded.problems))
            )
            for loaded in file.configs:
                config = loaded.settings
                name = config.name if config is not None and len(configs) > 1 else ""
                self.add(msgspec.structs.replace(loaded, problems=()), name=name)
        for earlier, later in manifests.duplicates(configs):
            shard = f"{later.definition.resource_type} ({later.definition.shard})"
            self.warnings.append(
                f"{later.name}: Duplicate: {earlier.name} watches the same {shard}; only the older of the two runs"
                if later.name != earlier.name
                else f"{later.name}: written twice; the one that is applied last remains"
            )


def _print(result: CheckResult | Effective, output: OutputFormat, *, lines: Iterable[str]) -> None:
    for line in lines if output is OutputFormat.TABLE else [options.encode(result, output)]:
        click.echo(line)


def _settings_table(entries: Sequence[EffectiveSetting]) -> Iterator[str]:
    return table.render(("KEY", "VALUE", "ORIGIN"), [(entry.key, entry.value, entry.origin) for entry in entries])
