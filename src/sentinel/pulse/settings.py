"""The settings of a pulse: which resources it watches, how often it polls, and what its events contain.

One file describes one shard. The docstring of each field is its entry in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Unpack

import msgspec

from sentinel.core.events import Mode
from sentinel.core.labels import Selector, equality
from sentinel.core.pulse import message
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import DataTypes
from sentinel.pulse.definition import MIN_POLL_INTERVAL, PulseApiSettings, PulseDefinition
from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node, ScalarNode
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import Loaded, Origin
from sentinel.runtime.settings.schema import StructList, TextMapping, section
from sentinel.runtime.settings.validation import INVALID, Validation

if TYPE_CHECKING:
    from sentinel.core.pulse.message import MessageData
else:
    MessageData = Mapping  # annotations are evaluated at runtime, where a recursive alias never ends

_LABEL = r"[A-Za-z0-9._/-]+"


class LabelMatch(msgspec.Struct, frozen=True):
    """One entry of `resource_selector`: the label must have exactly this value."""

    label: str
    value: str


def _resource_type() -> FieldType:
    return field_types.text(
        "a plural that is one segment of a URL, such as clusters",
        r"(?!\.{1,2}$)[A-Za-z0-9._~-]+",  # never escaped in a URL, so no proxy rewrites it
    )


def _label_value(given: str) -> str:
    # Commas and equals signs separate requirements in the query and in the shard's name.
    if not given.isprintable() or "," in given or "=" in given:
        raise InvalidValue
    return given


class _SelectorItems(StructList, frozen=True):
    """The list of requirements. Each label may occur once: two values for one label would select nothing."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return a tuple of label matches."""
        value = super().read(node, path, at, validation)
        seen: set[str] = set()
        for index, item in enumerate(node.items if isinstance(node, ListNode) else ()):
            label = item.get("label") if isinstance(item, MappingNode) else None
            if label is None or not isinstance(label.value, ScalarNode):
                continue
            if label.value.text in seen:
                validation.reject(
                    label.value.at, f"{path}[{index}].label", "expected each label once, got it a second time"
                )
                value = INVALID
            seen.add(label.value.text)
        return value


def _selector() -> StructList:
    return _SelectorItems(
        item=section(
            LabelMatch,
            label=field_types.text("the name of a label, such as region", _LABEL),
            value=FieldType("the value of a label, without commas and equals signs", _label_value),
        ),
        expected="a list of {label, value}, or [] to watch everything",
    )


def _message_data() -> TextMapping:
    return TextMapping(
        "a mapping of names to paths or templates, such as {resource_id: .id}", message.compile_leaf
    )


def _default_message_data() -> MessageData:
    return {"resource_id": ".id", "resource_type": ".kind"}


class PulseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one Sentinel."""

    resource_type: Annotated[str, _resource_type()]
    """The resources to watch, by their plural in the API: `clusters`, `nodepools`, `manifests`, `workloads`, or
    any other that is one segment of a URL (letters, digits, `-`, `.`, `_`, `~`)."""

    poll_interval: Annotated[timedelta, field_types.duration(minimum=MIN_POLL_INTERVAL)] = timedelta(seconds=5)
    """From the start of one poll to the start of the next; at least 100ms."""

    max_age_not_ready: timedelta = timedelta(seconds=10)
    """How old the status of a resource that is not ready may become before an event is due."""

    max_age_ready: timedelta = timedelta(minutes=30)
    """How old the status of a resource that is ready may become before an event is due."""

    max_age_jitter: Annotated[float, field_types.SHARE] = 0.0
    """The share of the max age by which it is shortened at most, from 0 to below 1. How much is a hash of the
    resource's id: resources that were updated together get their next events spread over that share of the max
    age, each always at the same age. `0`: no jitter."""

    resource_selector: Annotated[tuple[LabelMatch, ...], _selector()] = ()
    """Which resources to watch: a list of `{label, value}`, all of which must match. Empty: all resources. Each
    label may occur once. A value may be empty and must not contain commas or equals signs."""

    hyperfleet_api: PulseApiSettings
    """The connection to the HyperFleet API."""

    message_data: Annotated[MessageData, _message_data()] = msgspec.field(default_factory=_default_message_data)
    """The data of each event: a mapping of names to paths into the resource (`.metadata.labels.region`), Go
    templates (`{{or .metadata.displayName .name}}`) or literals. Mappings may be nested. Numbers and booleans are
    literals as written; lists, null and empty strings are refused. A flag or variable such as
    `message_data.region` sets a single value and keeps the others."""

    message_data_types: DataTypes = DataTypes.TEXT
    """The types of the values in `message_data`. `text`: all are strings. `native`: the value at a path keeps its
    JSON type, also if it is an object or a list, and a missing one is null; literals and templates are strings.
    The adapters of the public HyperFleet need `native`: they read `generation` as a number."""

    generation_check: bool = True
    """Whether a generation that no adapter has observed yet makes an event due at once. False: only the age of the
    status counts."""

    pulse_on_progress: bool = False
    """Whether an event is due at once when an adapter has completed its part, so that adapters that depend on it
    do not wait for the max age. One event for each completion. Needs an API that sets `status.last_progress_time`,
    as Sentinel's own does."""

    republish_interval: Annotated[timedelta | None, field_types.ANY_DURATION] = None
    """The shortest time between two events for the same generation of a resource while its status does not change.
    Unset: the max age in force. `0s`: at every poll."""

    max_events_per_second: Annotated[float | None, field_types.number(0.001, 1_000_000)] = None
    """A rate limit that spreads a backlog over time, from 0.001 to 1000000. New generations, requested pulses and
    progress go first. Unset: no limit."""

    event_mode: Mode = Mode.STRUCTURED
    """How a CloudEvent is encoded in a message: `structured` sends the whole event as the body, `binary` only its
    data."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Logging."""

    @property
    def definition(self) -> PulseDefinition:
        """The pulse that these settings describe."""
        return PulseDefinition(
            resource_type=self.resource_type,
            selector=Selector(tuple(equality(each.label, each.value) for each in self.resource_selector)),
            api=self.hyperfleet_api,
            poll_interval=self.poll_interval,
            policy=Policy(
                max_age_not_ready=self.max_age_not_ready,
                max_age_ready=self.max_age_ready,
                checks_generation=self.generation_check,
                follows_progress=self.pulse_on_progress,
                max_age_jitter=self.max_age_jitter,
            ),
            message_data=self.message_data,
            message_data_types=self.message_data_types,
            republish_interval=self.republish_interval,
            max_events_per_second=self.max_events_per_second,
            event_mode=self.event_mode,
        )


def is_selectable(match: LabelMatch) -> bool:
    """Whether `resource_selector` accepts this requirement; resources may have labels that it does not."""
    try:
        _label_value(match.value)
    except InvalidValue:
        return False
    return re.fullmatch(_LABEL, match.label) is not None


def load(**options: Unpack[loader.LoadOptions]) -> Loaded[PulseSettings]:
    """Load a pulse's settings as `runtime.settings.loader.load` does, and warn about a token given twice."""
    loaded = loader.load(PulseSettings, **options)
    pulse = loaded.settings
    if pulse is not None and pulse.hyperfleet_api.token and pulse.hyperfleet_api.token_file:
        warning = "HYPERFLEET_API_TOKEN wins over hyperfleet_api.token_file"
        return msgspec.structs.replace(loaded, warnings=(*loaded.warnings, warning))
    return loaded
