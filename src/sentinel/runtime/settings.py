"""Settings: what they are, where they may be written, and what holds when they are written twice.

Here is what every component's settings share: the HyperFleet API, logging, and the way a settings file, the
environment and flags become one frozen struct. A component declares its own settings beside itself, as a struct
whose field docstrings are the reference. The broker, which adapters share, has a module of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import msgspec

from sentinel.core.selector import SelectorParam
from sentinel.runtime import leaves
from sentinel.runtime.broker_settings import BrokerSettings, BrokerType, load_broker
from sentinel.runtime.layers import Given, from_environment, from_flags, merge, overlay
from sentinel.runtime.leaves import Leaf, Refused
from sentinel.runtime.provenance import Entry, Loaded, Origin, Problem, Source, file_origin, in_order
from sentinel.runtime.reading import Reading
from sentinel.runtime.secrets import Secret
from sentinel.runtime.sections import Elsewhere, section
from sentinel.runtime.telemetry import Format as LogFormat
from sentinel.runtime.telemetry import Level as LogLevel
from sentinel.runtime.tree import Table
from sentinel.runtime.yamltree import Parsed, parse_file

__all__ = [
    "ApiSettings",
    "BrokerSettings",
    "BrokerType",
    "Entry",
    "Loaded",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "Problem",
    "SelectorParam",
    "load",
    "load_broker",
]

T = TypeVar("T", bound=msgspec.Struct)

PREFIX = "SENTINEL_"


def _endpoint(given: str) -> str:
    if "@" in given:
        raise Refused(
            "without user and password: use hyperfleet_api.token_file or HYPERFLEET_API_TOKEN", hides_text=True
        )
    if not given.isprintable() or set(given) & set(' \\?#"<>^`{|}'):
        raise Refused("without query, fragment, spaces")
    try:
        url = urlsplit(given)
        is_complete = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        raise Refused
    return given.rstrip("/")


def _token(given: str) -> Secret:
    if not given.isascii() or not given.isprintable() or " " in given:
        raise Refused("it must not contain spaces or control characters")
    return Secret(given)


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the HyperFleet API is reached."""

    endpoint: Annotated[str, Leaf("a URL such as http://hyperfleet-api:8000", _endpoint)]
    """The address of the API: `http` or `https`, a host, and optionally a port and a path that goes before
    `/api/hyperfleet/v1`. No query, no fragment, no user and password."""

    timeout: timedelta = timedelta(seconds=10)
    """How long one request may take, its body included."""

    page_size: Annotated[int, leaves.whole(1, 1000)] = 100
    """How many resources are asked for in one request, from 1 to 1000. The public API of today refuses more
    than 100."""

    selector_param: SelectorParam = SelectorParam.LABELS
    """How the API takes `resource_selector`: `labels` sends `labels=region=us-east`, `search` sends
    `search=labels.region='us-east'`, which is what the public API understands today."""

    token_file: Path | None = None
    """A file with the bearer token, read again when it changes. Relative to the working directory. It need not
    exist where the settings are checked, only where they are used."""

    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authorities that are trusted for `https`, instead of the
    system's. Relative to the working directory; it need not exist where the settings are checked."""

    gzip: bool = False
    """Whether to ask for compressed answers: less traffic, more work on both sides."""

    token: Annotated[
        Secret | None,
        Elsewhere(
            "HYPERFLEET_API_TOKEN",
            "use hyperfleet_api.token_file, or the environment variable HYPERFLEET_API_TOKEN",
            Leaf("a bearer token", _token, is_secret=True),
        ),
    ] = None
    """The bearer token itself. Only from the environment variable `HYPERFLEET_API_TOKEN`, which wins over
    `token_file`; refused in files and flags."""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged, and how."""

    level: LogLevel = LogLevel.INFO
    """The least important event that is still logged: `debug`, `info`, `warning` or `error`."""

    format: LogFormat | None = None
    """`json`, one object a line, or `console`, for people. Unset: `console` on a terminal, otherwise `json`."""


def load(
    struct: type[T],
    *,
    file: Path | None,
    environ: Mapping[str, str],
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Loaded[T]:
    """Loads the settings that a struct declares. Never raises: whatever is wrong is a problem.

    `sets` are the values of `--set`. `overrides` are those of a command's own flags, by key: `log.level` for
    `--log-level`; they beat everything. `defaults`, by key, stand in for those of the struct.
    """
    declared = section(struct)
    root = Origin() if file is None else file_origin(file)
    written = Parsed(Table((), root)) if file is None else parse_file(file)
    reading = Reading(environ=environ, known=declared.paths(), is_partial=written.table is None)
    reading.problems.extend(written.problems)

    tree = Table((), root)
    for key, text in (defaults or {}).items():
        tree = overlay(tree, declared, Given(tuple(key.split(".")), text, Origin()), reading)
    if written.table is not None:
        tree = merge(tree, written.table, declared)
    given, warnings = from_environment(declared, environ, PREFIX)
    given += from_flags(sets, reading)
    for key, text in (overrides or {}).items():
        flag = "--" + key.replace(".", "-").replace("_", "-")
        given.append(Given(tuple(key.split(".")), text, Origin(Source.FLAG, flag)))
    for value in given:
        tree = overlay(tree, declared, value, reading)

    settings = declared.read(tree, "", root, reading)
    return Loaded(
        settings=settings if isinstance(settings, struct) and not reading.problems else None,
        problems=in_order(reading.problems),
        warnings=tuple(warnings),
        entries=() if reading.problems else tuple(reading.entries),
        secrets=tuple(reading.secrets),
    )
