"""Query parameters and bodies of the hub's REST API. The docstrings appear in its OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sentinel.core.hub.metrics_samples import Sample
from sentinel.core.hub.states import State
from sentinel.core.hub.versions import MAX_NUMBER
from sentinel.core.proxy.problem import Problem
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.hub.secrets import MAX_VALUE_LENGTH, UsedSecret
from sentinel.ports.hub_store import Config, ConfigVersion
from sentinel.ports.webhook_store import Delivery
from sentinel.web.lists import Page, PageSize

VersionNumber = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Cursor = Annotated[str, Meta(description="The cursor from `next` of the previous page.")]
Summary = Annotated[str, Meta(max_length=1_000, description="What changed and why, for people.")]


class PageParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of a list."""

    size: PageSize = 100
    after: Cursor = ""


class InstanceParameters(PageParameters, frozen=True, kw_only=True):
    """The query of the list of instances."""

    labels: Annotated[str, Meta(description="A label selector in Kubernetes syntax.")] = ""
    state: Annotated[
        State | None, Meta(description="Only instances in this state. Removed ones are listed only by it.")
    ] = None


class SampleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Counters and latencies of a proxy at one time."""

    time: datetime
    requests_total: int
    requests_failed: int
    latency_p50_ms: float
    latency_p99_ms: float
    bytes_sent: int
    bytes_received: int

    @classmethod
    def of(cls, sample: Sample) -> SampleDocument:
        metrics = sample.metrics
        return cls(
            time=sample.time,
            requests_total=metrics.requests_total,
            requests_failed=metrics.requests_failed,
            latency_p50_ms=metrics.latency_p50_ms,
            latency_p99_ms=metrics.latency_p99_ms,
            bytes_sent=metrics.bytes_sent,
            bytes_received=metrics.bytes_received,
        )


class InstanceList(Page[InstanceDocument], frozen=True):
    """A page of instances, in the order of their ids."""


class MetricsParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The query of the metrics of an instance."""

    since: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="Only samples after this time, RFC 3339. Unset: all that are kept."),
    ] = None


class MetricsList(msgspec.Struct, frozen=True):
    """The samples of an instance, oldest first."""

    items: Sequence[SampleDocument]


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done."""

    reason: Annotated[str, Meta(max_length=1_000, description="For the agent's log and the audit.")] = ""


class NewAssignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The version that an instance should run."""

    config_id: str
    version: VersionNumber


class NewConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration to create, with its first version."""

    id: Annotated[str, Meta(description="Letters, digits and ._~- only; not validate.")]
    content: Annotated[str, Meta(description="The text, in KDL.")]
    change_summary: Summary = ""


class NewConfigVersion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to add: a text, or a copy of an earlier version."""

    content: Annotated[str | UnsetType, Meta(description="The text, in KDL.")] = UNSET
    copy_of: Annotated[
        VersionNumber | UnsetType, Meta(description="The number of a version of the same configuration to copy.")
    ] = UNSET
    change_summary: Summary = ""


class ConfigDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration. Its text is in its versions."""

    id: str
    latest_version: int
    created_time: datetime
    created_by: str
    updated_time: datetime
    assigned: int
    """How many instances have one of its versions assigned."""

    @classmethod
    def of(cls, config: Config, *, assigned: int) -> ConfigDocument:
        return cls(
            id=config.id,
            latest_version=config.latest_version,
            created_time=config.created_time,
            created_by=config.created_by,
            updated_time=config.updated_time,
            assigned=assigned,
        )


class ConfigList(Page[ConfigDocument], frozen=True):
    """A page of configurations, in the order of their ids."""


class VersionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a configuration. It never changes."""

    config_id: str
    version: int
    hash: str
    """The SHA-256 of `content` in lower-case hexadecimal."""
    change_summary: str
    created_time: datetime
    created_by: str
    restart_required: bool
    """Whether an instance that runs the version before has to restart."""
    secrets: Sequence[str]
    """The secrets that it needs, in order: `secret:…`, `env:…`, `vault:…`."""
    warnings: Sequence[Problem]
    content: str | UnsetType = UNSET
    """Left out of lists and events."""

    @classmethod
    def of(cls, version: ConfigVersion, *, has_content: bool = True) -> VersionDocument:
        return cls(
            config_id=version.config_id,
            version=version.version,
            hash=version.hash,
            change_summary=version.change_summary,
            created_time=version.created_time,
            created_by=version.created_by,
            restart_required=version.restart_required,
            secrets=version.secrets,
            warnings=[msgspec.json.decode(each, type=Problem) for each in version.warnings],
            content=version.content if has_content else UNSET,
        )


class VersionList(Page[VersionDocument], frozen=True):
    """A page of versions without their contents, newest first."""


class NewValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a secret."""

    value: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_VALUE_LENGTH,
            description="Text, such as a certificate with its chain, or a key, in PEM.",
            extra_json_schema={"format": "password", "writeOnly": True},
        ),
    ]

    def __repr__(self) -> str:
        return "NewValue()"


class SecretDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A secret. Its value is never shown."""

    name: str
    updated_time: datetime
    used_by: Sequence[str]
    """The versions that name it, such as `edge@3`: the latest of each configuration, and those that are assigned
    to an instance."""

    @classmethod
    def of(cls, used: UsedSecret) -> SecretDocument:
        return cls(
            name=used.secret.name,
            updated_time=used.secret.updated_time,
            used_by=[str(each) for each in used.used_by],
        )


class SecretList(Page[SecretDocument], frozen=True):
    """A page of secrets, in the order of their names."""


class DeadLetterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a webhook did not take after all attempts."""

    id: str
    webhook: str
    """The host of its URL, and a hash of the URL."""
    type: str
    subject: str
    event: int
    """The number of the event, which is the id of its CloudEvent."""
    event_time: datetime
    attempts: int
    error: str
    """Why the last attempt failed."""
    failed_time: datetime | None

    @classmethod
    def of(cls, delivery: Delivery) -> DeadLetterDocument:
        event = delivery.event
        return cls(
            id=str(delivery.id),
            webhook=delivery.webhook,
            type=event.type.value,
            subject=event.subject,
            event=event.number,
            event_time=event.time,
            attempts=delivery.attempts,
            error=delivery.error,
            failed_time=delivery.failed_time,
        )


class DeadLetterList(Page[DeadLetterDocument], frozen=True):
    """A page of dead letters, oldest first."""


class DiffParameters(msgspec.Struct, frozen=True, kw_only=True, rename={"base": "from"}):
    """The query of a difference."""

    base: Annotated[
        VersionNumber | None, Meta(description="The version to compare with. Unset: the one before.")
    ] = None


class DifferenceDocument(msgspec.Struct, frozen=True):
    """What is different between two versions."""

    diff: str
    """Unified; empty if the texts are equal."""
    restart_required: bool


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to check."""

    content: str


class CheckDocument(msgspec.Struct, frozen=True):
    """Everything that is wrong with a text."""

    valid: bool
    problems: Sequence[Problem]


class RefusedText(msgspec.Struct, frozen=True):
    """An error of a text that was not stored."""

    level: int
    code: str
    line: int | None
    column: int | None
    message: str
    suggestion: str | None = None

    @classmethod
    def of(cls, problem: Problem) -> RefusedText:
        return cls(problem.level, problem.code, problem.line, problem.column, problem.message, problem.suggestion)


class RefusedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a text that was not stored, or of the field that names another version."""

    field: str | UnsetType = UNSET
    message: str
    level: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    line: int | None | UnsetType = UNSET
    column: int | None | UnsetType = UNSET
    suggestion: str | None | UnsetType = UNSET
