"""SentinelConfig: a pulse and its broker, described by a Kubernetes resource.

The structs are the one description of its fields: how they are read, the CRD (`crd.py`) and the reference. The
docstring of each field is its text in both. A SentinelConfig is the same whether it comes from the API server or
from a manifest (`manifests.py`). Values of Secrets are not part of it; `resolve.py` adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from sentinel.core import labels
from sentinel.core.events import Mode
from sentinel.core.labels import InvalidMatch, MatchExpression, Selector, SelectorParam
from sentinel.core.pulse import message
from sentinel.core.pulse.decision import Policy
from sentinel.core.pulse.message import DataTypes
from sentinel.ports.kube import KubeKind
from sentinel.pulse.definition import MIN_POLL_INTERVAL, PulseApiSettings, PulseDefinition, ShardKey, WatchMode
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import broker_values, field_types, hyperfleet_api
from sentinel.runtime.settings.config_tree import Node, join, locate
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import Origin
from sentinel.runtime.settings.schema import FlatMapping, Section, StructList, TextList, TextMapping, section
from sentinel.runtime.settings.validation import INVALID, Validation

if TYPE_CHECKING:
    from sentinel.core.pulse.message import MessageData
else:
    MessageData = Mapping  # annotations are evaluated at runtime, where a recursive alias never ends

SENTINEL_CONFIG: Final = KubeKind(
    group="hyperfleet.redhat.com", version="v1alpha1", kind="SentinelConfig", plural="sentinelconfigs"
)

OBJECT_NAME: Final = field_types.text(
    "the name of an object, such as us-east",
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
)
_SECRET_KEY = field_types.text("a key of a Secret, such as token", r"[-._a-zA-Z0-9]{1,253}")


def _parse_destination(text: str) -> object:
    if not text:
        raise InvalidValue
    return broker_values.EXCHANGE.parse(text)


_DESTINATION = FieldType("the name of a topic or an exchange", _parse_destination)


class ResourceType(StrEnum):
    """The resources that a SentinelConfig may watch."""

    CLUSTERS = "clusters"
    NODEPOOLS = "nodepools"


class BrokerKind(StrEnum):
    """The brokers that a SentinelConfig may use."""

    GCP_PUBSUB = "gcp-pubsub"
    RABBITMQ = "rabbitmq"


class MatchOperator(StrEnum):
    """The operators of `matchExpressions`."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class ShardExpression(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A requirement on one label."""

    key: str
    """The label."""

    operator: MatchOperator
    """`In`, `NotIn`, `Exists` or `DoesNotExist`. `NotIn` and `DoesNotExist` also select resources without the
    label."""

    values: Annotated[tuple[str, ...], TextList("a list of values")] = ()
    """The values for `In` and `NotIn`, at least one; none for `Exists` and `DoesNotExist`."""


class ShardSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A label selector of Kubernetes."""

    match_labels: Annotated[Mapping[str, str], FlatMapping("a mapping of labels, such as {region: us-east}")] = (
        msgspec.field(default_factory=dict)
    )
    """Labels and the values that they must have."""

    match_expressions: Annotated[
        tuple[ShardExpression, ...],
        StructList(item=section(ShardExpression), expected="a list of {key, operator, values}"),
    ] = ()
    """Further requirements on labels."""

    @property
    def selector(self) -> Selector:
        """The requirements, sorted by key as Kubernetes does. Raises `InvalidMatch`."""
        expressions = [MatchExpression(each.key, each.operator, each.values) for each in self.match_expressions]
        requirements = dict.fromkeys(labels.from_match_labels(self.match_labels, expressions).requirements)
        return Selector(tuple(sorted(requirements, key=lambda each: (each.key, str(each)))))


class _SelectorSection(Section, frozen=True):
    """A selector that Kubernetes would accept."""

    def read(self, node: Node, path: str, at: Origin, validation: Validation) -> object:
        """Return the struct, or `INVALID` if a label or an expression is invalid."""
        value = super().read(node, path, at, validation)
        if isinstance(value, ShardSelector):
            try:
                _ = value.selector
            except InvalidMatch as invalid:
                for inner, problem in invalid.problems:
                    validation.reject(locate(node, inner), join(path, inner), problem)
                return INVALID
        return value


class TokenSecretRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A key of a Secret."""

    name: Annotated[str, OBJECT_NAME]
    """The name of the Secret, in the namespace of the SentinelConfig."""

    key: Annotated[str, _SECRET_KEY] = "token"
    """The key that holds the token."""


class CredentialsSecretRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Secret with the credentials for a broker."""

    name: Annotated[str, OBJECT_NAME]
    """The name of the Secret, in the namespace of the SentinelConfig."""


class HyperFleetApi(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The connection to the HyperFleet API."""

    url: Annotated[str, hyperfleet_api.endpoint(instead_of_password="tokenSecretRef")]  # noqa: S106 - a field's name
    """HyperFleet API base URL: `http` or `https`, a host, and optionally a port and a path prefix for
    `/api/hyperfleet/v1`."""

    timeout: timedelta = timedelta(seconds=10)
    """The timeout of one request, including its body."""

    token_secret_ref: TokenSecretRef | None = None
    """The Secret with the bearer token. The operator needs the permission to read Secrets."""

    watch: WatchMode = WatchMode.AUTO
    """Whether to follow the stream of a server that has one, so that a changed spec is published at once instead
    of at the next poll: `auto` or `off`."""


class BrokerSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The broker that events are published to."""

    type: BrokerKind
    """Message broker type: `gcp-pubsub` or `rabbitmq`."""

    topic: Annotated[str, _DESTINATION]
    """Topic/Exchange name for publishing events."""

    project_id: Annotated[str | None, broker_values.PROJECT_ID] = msgspec.field(default=None, name="projectID")
    """GCP Project ID (required for gcp-pubsub)."""

    url: Annotated[Secret | None, broker_values.URL] = None
    """Broker URL (required for rabbitmq): `amqp` or `amqps`. Preferably without user and password; use
    `credentialsSecretRef`."""

    exchange: Annotated[str | None, _DESTINATION] = None
    """Exchange name (optional for rabbitmq, defaults to topic). An exchange that does not exist is declared as
    durable and `fanout`."""

    credentials_secret_ref: CredentialsSecretRef | None = None
    """The Secret with the credentials: `username` and `password` for rabbitmq, which override those of the URL;
    `key.json`, the key of a service account, for gcp-pubsub. Without it, gcp-pubsub uses the operator's own
    credentials. The operator needs the permission to read Secrets."""


class SentinelConfigSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a SentinelConfig."""

    resource_type: ResourceType
    """HyperFleet resource type to watch: `clusters` or `nodepools`."""

    backoff_not_ready: timedelta = timedelta(seconds=10)
    """Backoff interval for resources NOT in Ready state: the age of the status at which an event is due."""

    backoff_ready: timedelta = timedelta(minutes=30)
    """Backoff interval for resources in Ready state: the age of the status at which an event is due."""

    shard_selector: Annotated[
        ShardSelector, _SelectorSection(ShardSelector, section(ShardSelector).fields, "a label selector")
    ] = msgspec.field(default_factory=ShardSelector)
    """Label selector for resource sharding. Empty: all resources. The same resourceType and selector may occur
    once in a namespace."""

    hyperfleet_api: HyperFleetApi = msgspec.field(name="hyperfleetAPI")
    """The connection to the HyperFleet API."""

    broker: BrokerSpec
    """The broker that events are published to."""

    poll_interval: Annotated[timedelta, field_types.duration(minimum=MIN_POLL_INTERVAL)] = timedelta(seconds=5)
    """How often to poll HyperFleet API, from the start of one poll to the start of the next; at least 100ms."""

    message_data: Annotated[
        MessageData | None,
        TextMapping("a mapping of names to paths or templates, such as {resource_id: .id}", message.compile_leaf),
    ] = None
    """The data of each event: a mapping of names to paths into the resource (`.metadata.labels.region`), Go
    templates (`{{or .metadata.displayName .name}}`) or literals. Mappings may be nested. Unset: `resourceType`,
    `resourceId` and `reason`, which is `generation-changed` or `backoff-expired`."""

    message_data_types: DataTypes = DataTypes.TEXT
    """The types of the values in `messageData`. `text`: all are strings. `native`: the value at a path keeps its
    JSON type, and a missing one is null."""

    selector_param: SelectorParam = SelectorParam.LABELS
    """How `shardSelector` is sent to the API: `labels` sends `labels=region=us-east`, `search` sends
    `search=labels.region='us-east'`, which the current public API requires. `search` knows neither `Exists` nor
    `DoesNotExist`."""

    page_size: Annotated[int, field_types.integer(1, 1000)] = 100
    """Resources per request. The current public API rejects more than 100."""

    generation_check: bool = True
    """Whether a generation that no adapter has observed yet makes an event due at once. False: only the age of the
    status counts."""

    republish_interval: Annotated[timedelta | None, field_types.ANY_DURATION] = None
    """The shortest time between two events for the same generation of a resource while its status does not change.
    Unset: the backoff in force. `0s`: at every poll."""

    max_events_per_second: Annotated[float | None, field_types.number(0.001, 1_000_000)] = None
    """A rate limit that spreads a backlog over time. New generations go first. Unset: no limit."""


class SentinelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A valid SentinelConfig."""

    name: str
    namespace: str = ""
    """Empty in a manifest that does not say."""
    uid: str = ""
    generation: int = 0
    created: datetime | None = None
    """Like the two before it, set by the API server."""
    spec: SentinelConfigSpec

    @property
    def selector(self) -> Selector:
        """Which resources it watches."""
        return self.spec.shard_selector.selector

    @property
    def shard_key(self) -> ShardKey:
        """What it watches. Two in a namespace with the same key would publish everything twice."""
        return self.definition.shard_key

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets of its namespace that it needs, for `resolve`."""
        references = (self.spec.hyperfleet_api.token_secret_ref, self.spec.broker.credentials_secret_ref)
        return frozenset(each.name for each in references if each is not None)

    @property
    def definition(self) -> PulseDefinition:
        """The pulse that it describes, without a token."""
        spec = self.spec
        data = message.reason_data(spec.resource_type) if spec.message_data is None else spec.message_data
        return PulseDefinition(
            resource_type=str(spec.resource_type),
            selector=self.selector,
            api=PulseApiSettings(
                endpoint=spec.hyperfleet_api.url,
                timeout=spec.hyperfleet_api.timeout,
                page_size=spec.page_size,
                selector_param=spec.selector_param,
                watch=spec.hyperfleet_api.watch,
            ),
            poll_interval=spec.poll_interval,
            policy=Policy(
                max_age_not_ready=spec.backoff_not_ready,
                max_age_ready=spec.backoff_ready,
                checks_generation=spec.generation_check,
            ),
            message_data=data,
            message_data_types=spec.message_data_types,
            republish_interval=spec.republish_interval,
            max_events_per_second=spec.max_events_per_second,
            event_mode=Mode.STRUCTURED,
            sorts_shard_by_key=True,
        )
