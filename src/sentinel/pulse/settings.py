"""The settings of a pulse: which resources it watches, how often it looks, and what its events say.

One file, one shard. The docstring of each field is its entry in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from sentinel.core.events import Mode
from sentinel.core.labels import Selector, equality
from sentinel.core.pulse import message
from sentinel.core.pulse.decision import Policy
from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node, ParsedSource, ScalarNode
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.hyperfleet_api import ApiSettings
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import Loaded, Origin
from sentinel.runtime.settings.schema import StructList, TextMapping, section
from sentinel.runtime.settings.validation import INVALID, Validation

if TYPE_CHECKING:
    from sentinel.core.pulse.message import MessageData
else:
    MessageData = Mapping  # annotations are evaluated here, and a recursive alias would have no end

_LABEL = r"[A-Za-z0-9._/-]+"


class LabelMatch(msgspec.Struct, frozen=True):
    """One entry of `resource_selector`: the label is there and has exactly this value."""

    label: str
    value: str


def _resource_type() -> FieldType:
    return field_types.text(
        "a plural that is one segment of a URL, such as clusters",
        r"(?!\.{1,2}$)[A-Za-z0-9._~-]+",  # what a URL never needs to escape, so that no proxy reads it otherwise
    )


def _label_value(given: str) -> str:
    # Both separate requirements where selectors are written as text: in the query and in the shard's name.
    if not given.isprintable() or "," in given or "=" in given:
        raise InvalidValue
    return given


class _SelectorItems(StructList, frozen=True):
    """The list of requirements, each label once: two values for one label select nothing at all."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """A tuple of label matches."""
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
    """What one Sentinel does."""

    resource_type: Annotated[str, _resource_type()]
    """The resources to watch, by the plural that the API knows them by: `clusters`, `nodepools`, `manifests`,
    `workloads`, or any other that is one segment of a URL (letters, digits, `-`, `.`, `_`, `~`)."""

    poll_interval: timedelta = timedelta(seconds=5)
    """From the start of one look at the fleet to the start of the next."""

    max_age_not_ready: timedelta = timedelta(seconds=10)
    """How old the status of a resource that is not ready may become before an event is due."""

    max_age_ready: timedelta = timedelta(minutes=30)
    """How old the status of a resource that is ready may become before an event is due."""

    resource_selector: Annotated[tuple[LabelMatch, ...], _selector()] = ()
    """Which resources to watch: a list of `{label, value}`, all of which must match; empty for all of them. A
    label is named once. A value may be empty, and has neither commas nor equals signs."""

    hyperfleet_api: ApiSettings
    """How the HyperFleet API is reached."""

    message_data: Annotated[MessageData, _message_data()] = msgspec.field(default_factory=_default_message_data)
    """The data of each event: names to paths into the resource (`.metadata.labels.region`), to Go templates
    (`{{or .metadata.displayName .name}}`) or to literals, nested at will. Numbers and booleans are literals as
    they are written; lists, null and empty texts are refused. A single value may be set by itself, as
    `message_data.region`, and then adds to the rest."""

    generation_check: bool = True
    """Whether a generation that no adapter has observed yet makes an event due at once. False leaves only the
    age of the status."""

    pulse_on_progress: bool = False
    """Whether an event is due at once when an adapter has completed its part, so that those which wait for it need
    not wait for a max age as well. One event for each completion; only for an API that tells of them in
    `status.last_progress_time`, as Sentinel's own does."""

    republish_interval: Annotated[timedelta | None, field_types.ANY_DURATION] = None
    """How long after an event the same generation of a resource may be published again while its status stands
    still. Unset: the max age in force. `0s`: at every poll."""

    max_events_per_second: Annotated[float | None, field_types.number(0.001, 1_000_000)] = None
    """A ceiling that spreads a backlog over time, from 0.001 to 1000000; new generations, requests and progress go
    first. Unset: none."""

    event_mode: Mode = Mode.STRUCTURED
    """How CloudEvents are laid out in messages: `structured`, the whole event as the body, or `binary`, only its
    data."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """What is logged, and how."""

    @property
    def selector(self) -> Selector:
        """The selector as one value."""
        return Selector(tuple(equality(match.label, match.value) for match in self.resource_selector))

    @property
    def shard(self) -> str:
        """The name of what is watched, in metrics and logs: sorted `label=value`, or `all`."""
        return self.selector.shard

    @property
    def policy(self) -> Policy:
        """What is due, and when."""
        return Policy(
            max_age_not_ready=self.max_age_not_ready,
            max_age_ready=self.max_age_ready,
            checks_generation=self.generation_check,
            follows_progress=self.pulse_on_progress,
        )


def is_selectable(match: LabelMatch) -> bool:
    """Whether a requirement could be written into `resource_selector`; a resource may have labels that cannot."""
    try:
        _label_value(match.value)
    except InvalidValue:
        return False
    return re.fullmatch(_LABEL, match.label) is not None


def load(
    *,
    file: Path | None = None,
    document: ParsedSource | None = None,
    environ: Mapping[str, str],
    sets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Loaded[PulseSettings]:
    """Loads a pulse's settings; the arguments and promises are those of `runtime.settings.loader.load`."""
    loaded = loader.load(
        PulseSettings,
        file=file,
        document=document,
        environ=environ,
        sets=sets,
        overrides=overrides,
        defaults=defaults,
    )
    pulse = loaded.settings
    if pulse is not None and pulse.hyperfleet_api.token and pulse.hyperfleet_api.token_file:
        warning = "HYPERFLEET_API_TOKEN wins over hyperfleet_api.token_file"
        return msgspec.structs.replace(loaded, warnings=(*loaded.warnings, warning))
    return loaded
