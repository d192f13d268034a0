"""The settings of an adapter: which one, how the API is reached, and how much is done at once.

The docstring of each field is its entry in the reference. The broker is set apart from them, by `BROKER_…`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import Loaded, Origin, Source
from sentinel.runtime.settings.yaml_file import parse_file

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an adapter is run."""

    task: Annotated[
        str,
        field_types.text("MODULE:NAME such as package.module:dns", rf"{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*"),
    ]
    """The adapter: the module in which it is declared, a colon, and its name there. The folder of this file comes
    first where modules are looked for."""

    hyperfleet_api: ApiSettings
    """How the HyperFleet API is reached."""

    concurrency: Annotated[int, field_types.integer(1, 1000)] = 10
    """How many resources are worked on at the same time, from 1 to 1000; never two evaluations of one resource."""

    task_timeout: timedelta = timedelta(seconds=30)
    """How long one evaluation may take; then it is cancelled and reported as an error of the adapter."""

    report_max_age: Annotated[timedelta, field_types.ANY_DURATION] = timedelta(0)
    """How old our last report on a generation may become before an event causes another evaluation. `0s`: every
    event does."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """What is logged, and how."""


def load(
    *,
    file: Path | None,
    environ: Mapping[str, str],
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Loaded[AdapterSettings]:
    """Loads an adapter's settings; the arguments and promises are those of `runtime.settings.loader.load`."""
    return loader.load(
        AdapterSettings, file=file, environ=environ, sets=sets, overrides=overrides, defaults=defaults
    )


def place_of_task(file: Path, loaded: Loaded[AdapterSettings]) -> Origin:
    """Where the adapter was named: settings keep no place that finding it could be refused at."""
    table = parse_file(file).root
    member = None if table is None else table.get("task")
    origin = next((entry.origin for entry in loaded.entries if entry.key == "task"), "")
    if member is not None and origin.startswith(Source.FILE):
        return member.value.at
    source, _, name = origin.partition(" ")
    return Origin(Source(source or Source.DEFAULT), name)
