"""What one pulse does, apart from where that is written.

A settings file and a SentinelConfig describe pulses in different words, and only the second has selectors beyond
equality. Both make a definition; everything that runs, explains or forecasts a pulse takes that. Two equal
definitions are the same pulse, so comparing them tells whether a reload changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from sentinel.core.events import Mode
from sentinel.core.labels import Requirement, Selector, SelectorParam
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import Composer, DataTypes
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.hyperfleet_api import ApiSettings

if TYPE_CHECKING:
    from sentinel.core.pulse.message import MessageData
else:
    MessageData = Mapping  # annotations are evaluated at runtime, where a recursive alias never ends

ShardKey: TypeAlias = tuple[str, frozenset[Requirement]]
"""The resource type and the requirements on labels, however they are written."""
MIN_POLL_INTERVAL: Final = timedelta(milliseconds=100)
"""A shorter interval is almost certainly a mistake in the unit."""


class WatchMode(StrEnum):
    """Whether a pulse follows a stream of changes."""

    AUTO = "auto"
    """If the server has one."""
    OFF = "off"


class PulseApiSettings(ApiSettings, frozen=True, kw_only=True):
    """The connection to the HyperFleet API, and how a pulse lists resources."""

    page_size: Annotated[int, field_types.integer(1, 1000)] = 100
    """Resources per request, from 1 to 1000. The current public API rejects more than 100."""

    selector_param: SelectorParam = SelectorParam.LABELS
    """How `resource_selector` is sent to the API: `labels` sends `labels=region=us-east`, `search` sends
    `search=labels.region='us-east'`, which the current public API requires."""

    watch: WatchMode = WatchMode.AUTO
    """Whether to follow the stream of a server that has one, so that a changed spec is published at once instead
    of at the next poll: `auto` or `off`. Polls stay as they are in both cases."""


class PulseDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A pulse: which resources it watches, when their events are due, and what the events contain."""

    resource_type: str
    """The plural in the API's paths."""
    selector: Selector
    api: PulseApiSettings
    poll_interval: timedelta
    policy: Policy
    message_data: MessageData
    message_data_types: DataTypes
    republish_interval: timedelta | None
    """None: the max age in force."""
    max_events_per_second: float | None
    event_mode: Mode
    sorts_shard_by_key: bool = False
    """Whether the shard's name has its requirements sorted by key, also if all are equalities."""

    @property
    def shard(self) -> str:
        """The shard's name in metrics and logs: the sorted requirements of the selector, or `all`."""
        return self.selector.shard_by_key if self.sorts_shard_by_key else self.selector.shard

    @property
    def shard_key(self) -> ShardKey:
        """What it watches. Two pulses with the same key would publish everything twice."""
        return self.resource_type, self.selector.normalized

    @property
    def composer(self) -> Composer:
        """The compiled `message_data`."""
        return Composer(self.message_data, types=self.message_data_types)
