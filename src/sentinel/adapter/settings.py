"""The settings of an adapter: its task, the connection to the API, concurrency and timeouts.

The docstring of each field is its entry in the reference. Broker settings are separate (`BROKER_…`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec

from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.settings.log import LogSettings

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an adapter process."""

    task: Annotated[
        str,
        field_types.text("MODULE:NAME such as package.module:dns", rf"{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*"),
    ]
    """The adapter: the module that declares it, a colon, and its name in that module. The folder of this file is
    the first entry of `sys.path`."""

    hyperfleet_api: ApiSettings
    """The connection to the HyperFleet API."""

    concurrency: Annotated[int, field_types.integer(1, 1000)] = 10
    """How many resources are evaluated at the same time, from 1 to 1000. One resource is never evaluated twice at
    the same time."""

    task_timeout: timedelta = timedelta(seconds=30)
    """How long one evaluation may take. After that it is cancelled and reported as an error of the adapter."""

    report_max_age: Annotated[timedelta, field_types.ANY_DURATION] = timedelta(0)
    """While our last report on the generation is younger than this, events cause no evaluation. `0s`: every event
    causes one."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Log level and format."""
