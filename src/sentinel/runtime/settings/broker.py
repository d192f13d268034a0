"""Broker settings, which pulses and adapters share. They are separate from the settings files of both.

The keys are names of environment variables, because a ConfigMap passes them to a container by `envFrom` or as a
mounted directory. The same keys are read from a plain YAML file and from the ConfigMap's manifest, so that they
can be checked before they are deployed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import broker_values, configmap, field_types
from sentinel.runtime.settings.config_tree import MappingNode, ParsedSource, ScalarNode
from sentinel.runtime.settings.report import EffectiveSetting, Loaded, Origin, Source, sorted_problems
from sentinel.runtime.settings.schema import section
from sentinel.runtime.settings.sources import misspelling_warnings
from sentinel.runtime.settings.validation import Validation

PREFIX = "BROKER_"
EMULATOR = "PUBSUB_EMULATOR_HOST"

# The value that Kubernetes gives BROKER_PORT in every pod if a Service is called "broker".
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://.*")


class BrokerType(StrEnum):
    """The supported brokers."""

    RABBITMQ = "rabbitmq"
    PUBSUB = "pubsub"
    STDOUT = "stdout"


_ALIASES = {"gcp-pubsub": BrokerType.PUBSUB, "googlepubsub": BrokerType.PUBSUB}


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: PREFIX + name.upper()):
    """The broker that events are published to."""

    type: Annotated[BrokerType, field_types.choice(BrokerType, aliases=_ALIASES)]
    """`rabbitmq`, `pubsub` (also `gcp-pubsub` or `googlepubsub`), or `stdout`: each event as one line of JSON,
    for pipes and experiments."""

    url: Annotated[Secret | None, broker_values.URL] = None
    """RabbitMQ: its address as one URL, `amqp` or `amqps`. Overrides host, port, vhost, username and password."""

    host: Annotated[str, broker_values.HOST] = ""
    """RabbitMQ: its host. Required without a URL."""

    port: Annotated[int, field_types.integer(1, 65535)] = 5672
    """RabbitMQ: its port."""

    vhost: Annotated[str, broker_values.short_string("the name of a virtual host")] = "/"
    """RabbitMQ: the virtual host."""

    username: Annotated[str, broker_values.USERNAME] = "guest"
    """RabbitMQ: the user name."""

    password: Secret = msgspec.field(default_factory=lambda: Secret("guest"))
    """RabbitMQ: the password. Preferably a variable from a Secret."""

    exchange: Annotated[str, broker_values.EXCHANGE] = "hyperfleet-events"
    """RabbitMQ: the exchange that events are published to. If it does not exist, it is declared as durable."""

    exchange_type: Annotated[
        str,
        field_types.text(
            "fanout, topic, direct, headers or a plugin's x-...", r"fanout|topic|direct|headers|x-[a-z0-9-]+"
        ),
    ] = "fanout"
    """RabbitMQ: the type of the exchange. It must match an existing exchange."""

    routing_key: Annotated[str, broker_values.short_string("a routing key")] = ""
    """RabbitMQ: the routing key of every event. A fanout exchange ignores it."""

    tls: bool = False
    """RabbitMQ: whether to connect with TLS. With a URL, the scheme decides."""

    ca_file: Path | None = None
    """RabbitMQ: a PEM file of certificate authorities to trust for TLS instead of the system's. Relative to the
    working directory. It need not exist where the settings are checked."""

    project_id: Annotated[str, broker_values.PROJECT_ID] = ""
    """Pub/Sub: the Google Cloud project. Required for Pub/Sub."""

    topic: Annotated[str, broker_values.TOPIC] = "hyperfleet-events"
    """Pub/Sub: the topic that events are published to."""

    create_topic: bool = False
    """Pub/Sub: whether to create the topic if it does not exist."""

    ordering_key: Annotated[str, broker_values.short_string("an ordering key")] = ""
    """Pub/Sub: the ordering key of every event, so that events arrive in order, at the cost of throughput.
    Default: none."""

    credentials_json: Annotated[Secret | None, broker_values.SERVICE_ACCOUNT_KEY] = None
    """Pub/Sub: the key of a service account, the JSON text itself. Preferably a variable from a Secret. Default:
    Google's application default credentials."""

    subscription_id: str = ""
    """Adapters: the queue or subscription to read from. Default: the name of the adapter."""

    longest_hold: Annotated[timedelta, field_types.duration(minimum=timedelta(seconds=1))] = timedelta(minutes=10)
    """Adapters on RabbitMQ: how long a message may be processed before it is requeued and received again. Choose a
    minute or two less than the broker's `consumer_timeout`, which the broker checks only periodically."""

    emulator_host: Annotated[
        str, field_types.text("host and port, such as 127.0.0.1:8085", r"[^\s/]+:[0-9]{1,5}")
    ] = msgspec.field(default="", name=EMULATOR)
    """Pub/Sub: host and port of an emulator to use instead of Google Cloud."""


_URL_PARTS = ("BROKER_HOST", "BROKER_PORT", "BROKER_VHOST", "BROKER_USERNAME", "BROKER_PASSWORD")
_KEYS_BY_TYPE: dict[BrokerType, frozenset[str]] = {
    BrokerType.RABBITMQ: frozenset(
        (
            "BROKER_TYPE",
            "BROKER_URL",
            *_URL_PARTS,
            "BROKER_EXCHANGE",
            "BROKER_EXCHANGE_TYPE",
            "BROKER_ROUTING_KEY",
            "BROKER_TLS",
            "BROKER_CA_FILE",
        )
    ),
    BrokerType.PUBSUB: frozenset(
        (
            "BROKER_TYPE",
            "BROKER_PROJECT_ID",
            "BROKER_TOPIC",
            "BROKER_CREATE_TOPIC",
            "BROKER_ORDERING_KEY",
            "BROKER_CREDENTIALS_JSON",
            EMULATOR,
        )
    ),
    BrokerType.STDOUT: frozenset(("BROKER_TYPE",)),
}


def load_broker(
    *,
    source: Path | None = None,
    document: ParsedSource | None = None,
    environ: Mapping[str, str],
    origins: Mapping[str, Origin] | None = None,
) -> Loaded[BrokerSettings]:
    """Load the broker's settings: a file, a ConfigMap manifest or a mounted directory, overridden by `environ`.

    A `document` with the same content may replace `source` (see `sources.from_object`). A process that loads
    documents for others passes an `environ` without its own variables. `origins`, by key, say where users wrote
    those values of `environ` that are not variables, such as in an option of the command line.

    Errors in the settings are returned as problems, not raised. If no broker is configured at all, the result has
    neither settings nor problems, and the caller decides whether it needs a broker.
    """
    schema = section(BrokerSettings)
    keys = schema.keys()
    unknown = (name for name in environ if name.startswith(PREFIX) and name not in keys)
    warnings = misspelling_warnings(unknown, {key: key for key in keys}, PREFIX)
    # Charts set an empty variable for a value that is not set.
    variables = {key: environ[key] for key in keys if environ.get(key)}
    if _SERVICE_LINK.fullmatch(variables.get("BROKER_PORT", "")):
        del variables["BROKER_PORT"]
        warnings.append(
            "BROKER_PORT was set by Kubernetes for a Service called broker and is ignored; set it to a port,"
            " or set enableServiceLinks: false"
        )
    if source is None and document is None and not variables.keys() - {EMULATOR}:
        return Loaded(None, warnings=tuple(warnings))

    if source is not None and document is not None:
        raise TypeError("expected a source or a document, got both")
    if source is not None:
        parsed = configmap.read(source, known=keys, is_ours=_is_ours)
    else:
        parsed = configmap.unwrap(document or ParsedSource.of(None, Origin()), is_ours=_is_ours)
    validation = Validation(environ=environ, is_partial=parsed.root is None)
    validation.problems.extend(parsed.problems)
    tree = parsed.root or MappingNode((), parsed.at)
    for key, text in variables.items():
        at = (origins or {}).get(key) or Origin(Source.ENVIRONMENT, key)
        tree = tree.with_member(key, ScalarNode(text, at, is_plain=False), at)
    settings = schema.read(tree, "", parsed.at, validation)
    _check_combinations(parsed.at, validation, warnings)
    return Loaded(
        settings=settings if isinstance(settings, BrokerSettings) and not validation.problems else None,
        problems=sorted_problems(validation.problems),
        warnings=tuple(warnings),
        entries=_relevant_entries(validation),
        secrets=(*validation.secrets, *_secrets_within(validation)),
    )


def _is_ours(key: str) -> bool:
    return key.startswith(PREFIX) or key == EMULATOR


def _check_combinations(root: Origin, validation: Validation, warnings: list[str]) -> None:
    """Check valid settings against each other."""
    values = validation.values
    url = values.get("BROKER_URL")
    match values.get("BROKER_TYPE"):
        case BrokerType.RABBITMQ if isinstance(url, Secret):
            if values.get("BROKER_TLS") is True and not url.reveal().lower().startswith("amqps:"):
                message = "expected BROKER_URL to begin with amqps:// since BROKER_TLS is true, got amqp://"
                validation.reject(validation.origins["BROKER_TLS"], "BROKER_TLS", message)
            ignored = [key for key in _URL_PARTS if validation.origins.get(key, Origin()) != Origin()]
            if ignored:
                warnings.append(f"BROKER_URL overrides {', '.join(ignored)}")
        case BrokerType.RABBITMQ if "BROKER_URL" in values:
            _require("BROKER_HOST", "a host name or address, or a BROKER_URL", root, validation)
        case BrokerType.PUBSUB:
            _require("BROKER_PROJECT_ID", "the id of a Google Cloud project", root, validation)
        case _:
            pass


def _require(key: str, expected: str, root: Origin, validation: Validation) -> None:
    if validation.values.get(key) == "" and not validation.is_partial:
        validation.reject(root, key, f"required, but missing; expected {expected}")


def _relevant_entries(validation: Validation) -> tuple[EffectiveSetting, ...]:
    """Return the effective settings without the defaults of other brokers."""
    kind = validation.values.get("BROKER_TYPE")
    if validation.problems or not isinstance(kind, BrokerType):
        return ()
    shown = _KEYS_BY_TYPE[kind]
    if validation.values["BROKER_URL"] is not None:
        shown = shown.difference(_URL_PARTS, ("BROKER_TLS",))
    return tuple(e for e in validation.entries if e.key in shown or validation.origins[e.key] != Origin())


def _secrets_within(validation: Validation) -> Iterator[Secret]:
    url, key = validation.values.get("BROKER_URL"), validation.values.get("BROKER_CREDENTIALS_JSON")
    if isinstance(url, Secret):
        yield from broker_values.url_passwords(url)
    if isinstance(key, Secret):
        yield broker_values.private_key(key)
