"""Broker settings, which Sentinels and adapters share and which therefore stand apart from either's file.

They have the names of environment variables, because that is how a ConfigMap hands them to a container: by
`envFrom`, or mounted as a directory with a file for each. The same names are read from a plain YAML file and
from the ConfigMap's own manifest, so that what is deployed can be checked before it is.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import msgspec

from sentinel.runtime.secrets import MASK, Secret
from sentinel.runtime.settings import configmap, field_types
from sentinel.runtime.settings.config_tree import MappingNode, ParsedSource, ScalarNode
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import EffectiveSetting, Loaded, Origin, Source, sorted_problems
from sentinel.runtime.settings.schema import section
from sentinel.runtime.settings.sources import near_misses
from sentinel.runtime.settings.validation import Validation

PREFIX = "BROKER_"
EMULATOR = "PUBSUB_EMULATOR_HOST"

# What Kubernetes sets BROKER_PORT to, in every pod, where a Service is called "broker".
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://.*")


class BrokerType(StrEnum):
    """Which broker events go to."""

    RABBITMQ = "rabbitmq"
    PUBSUB = "pubsub"
    STDOUT = "stdout"


_ALIASES = {"gcp-pubsub": BrokerType.PUBSUB, "googlepubsub": BrokerType.PUBSUB}


def _url(given: str) -> Secret:
    hint = "percent-encode what is special in user, password and vhost"
    try:
        url = urlsplit(given)
        host, port = url.hostname, url.port
    except ValueError:
        raise InvalidValue(hint) from None  # not chained: the library's message may repeat the password
    userinfo, at, place = url.netloc.rpartition("@")
    if url.scheme not in ("amqp", "amqps") or not host or port == 0 or not given.isprintable() or " " in given:
        raise InvalidValue(hint)
    if url.fragment or given.count("@") != len(at):
        # An unescaped / ? # or @ in the password ends the host early, and its rest would be shown as the vhost.
        raise InvalidValue(hint)
    return Secret(given, shown=f"{url.scheme}://{MASK + at if userinfo else ''}{place}{url.path}")


def _host(given: str) -> str:
    if "@" in given or "://" in given:
        raise InvalidValue("a URL belongs into BROKER_URL", hides_text=True)
    try:
        ipaddress.IPv6Address(given)
    except ValueError:
        if re.fullmatch(r"[A-Za-z0-9._-]+", given) is None:
            raise InvalidValue("a port belongs into BROKER_PORT" if ":" in given else "") from None
    return given


def _short(expected: str) -> FieldType:
    def parse(given: str) -> str:
        if len(given.encode()) > 255:  # a short string of AMQP
            raise InvalidValue("at most 255 bytes")
        return given

    return FieldType(expected, parse)


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: PREFIX + name.upper()):
    """Where events go, and how they get there."""

    type: Annotated[BrokerType, field_types.choice(BrokerType, aliases=_ALIASES)]
    """`rabbitmq`, `pubsub` (also `gcp-pubsub` or `googlepubsub`), or `stdout`: each event as one line of JSON,
    for pipes and trials."""

    url: Annotated[
        Secret | None, FieldType("a URL such as amqp://user:password@host:5672/vhost", _url, is_secret=True)
    ] = None
    """RabbitMQ: where it is, as one URL, `amqp` or `amqps`. Wins over host, port, vhost, username, password."""

    host: Annotated[str, FieldType("a host name or address", _host)] = ""
    """RabbitMQ: its host. Required, unless there is a URL."""

    port: Annotated[int, field_types.integer(1, 65535)] = 5672
    """RabbitMQ: its port."""

    vhost: Annotated[str, _short("the name of a virtual host")] = "/"
    """RabbitMQ: the virtual host."""

    username: Annotated[str, _short("a user name")] = "guest"
    """RabbitMQ: who connects."""

    password: Secret = msgspec.field(default_factory=lambda: Secret("guest"))
    """RabbitMQ: the password. Best from a Secret, as a variable."""

    exchange: Annotated[str, _short("the name of an exchange")] = "hyperfleet-events"
    """RabbitMQ: the exchange that events are published to; it is declared, durable, if it is not there."""

    exchange_type: Annotated[
        str,
        field_types.text(
            "fanout, topic, direct, headers or a plugin's x-...", r"fanout|topic|direct|headers|x-[a-z0-9-]+"
        ),
    ] = "fanout"
    """RabbitMQ: the type of the exchange. It must be that of the exchange that exists."""

    routing_key: Annotated[str, _short("a routing key")] = ""
    """RabbitMQ: the routing key of every event. A fanout exchange ignores it."""

    tls: bool = False
    """RabbitMQ: whether to connect with TLS. With a URL, its scheme says so."""

    ca_file: Path | None = None
    """RabbitMQ: a file with the certificates (PEM) of the authorities that are trusted for TLS, instead of the
    system's. Relative to the working directory; it need not exist where the settings are checked."""

    project_id: Annotated[
        str, field_types.text("the id of a project, such as hyperfleet-prod", r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
    ] = ""
    """Pub/Sub: the Google Cloud project. Required there."""

    topic: Annotated[
        str,
        field_types.text(
            "the id of a topic, such as hyperfleet-events", r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{0,254}"
        ),
    ] = "hyperfleet-events"
    """Pub/Sub: the topic that events are published to."""

    create_topic: bool = False
    """Pub/Sub: whether to create the topic if it is not there."""

    ordering_key: Annotated[str, _short("an ordering key")] = ""
    """Pub/Sub: the ordering key of every event, so that they arrive in order, at the cost of throughput. Unset:
    none."""

    subscription_id: str = ""
    """Adapters: the name of the queue or subscription they read from. Unset: the adapter's own name."""

    longest_hold: Annotated[timedelta, field_types.duration(minimum=timedelta(seconds=1))] = timedelta(minutes=10)
    """Adapters on RabbitMQ: after how long a message that is still worked on is given back and taken again, which
    has to be less than the broker's `consumer_timeout`, by a minute or two: it looks only now and then."""

    emulator_host: Annotated[
        str, field_types.text("host and port, such as 127.0.0.1:8085", r"[^\s/]+:[0-9]{1,5}")
    ] = msgspec.field(default="", name=EMULATOR)
    """Pub/Sub: host and port of an emulator to use instead of Google's service."""


_URL_PARTS = ("BROKER_HOST", "BROKER_PORT", "BROKER_VHOST", "BROKER_USERNAME", "BROKER_PASSWORD")
_RELEVANT: dict[BrokerType, frozenset[str]] = {
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
            EMULATOR,
        )
    ),
    BrokerType.STDOUT: frozenset(("BROKER_TYPE",)),
}


def load_broker(
    *, source: Path | None = None, document: ParsedSource | None = None, environ: Mapping[str, str]
) -> Loaded[BrokerSettings]:
    """Loads the broker's settings: the environment over a file, a ConfigMap's manifest, or its directory.

    In place of `source` there may be a `document` of the same content (see `sources.from_object`). A process that
    loads documents for others passes an `environ` without its own variables.

    Whatever is wrong with the settings is a problem, not an exception. Where nothing at all speaks of a broker
    there are neither settings nor problems, and the caller says whether it needs one.
    """
    declared = section(BrokerSettings)
    keys = declared.keys()
    unknown = (name for name in environ if name.startswith(PREFIX) and name not in keys)
    warnings = near_misses(unknown, {key: key for key in keys}, PREFIX)
    # An empty variable is how charts write one that is not set.
    given = {key: environ[key] for key in keys if environ.get(key)}
    if _SERVICE_LINK.fullmatch(given.get("BROKER_PORT", "")):
        del given["BROKER_PORT"]
        warnings.append(
            "BROKER_PORT is what Kubernetes sets for a Service called broker, and is ignored; set it to a port,"
            " or set enableServiceLinks: false"
        )
    if source is None and document is None and not given.keys() - {EMULATOR}:
        return Loaded(None, warnings=tuple(warnings))

    written = _written(source, document, keys)
    validation = Validation(environ=environ, is_partial=written.root is None)
    validation.problems.extend(written.problems)
    tree = written.root or MappingNode((), written.at)
    for key, text in given.items():
        at = Origin(Source.ENVIRONMENT, key)
        tree = tree.put(key, ScalarNode(text, at, is_plain=False), at)
    settings = declared.read(tree, "", written.at, validation)
    _check_together(written.at, validation, warnings)
    return Loaded(
        settings=settings if isinstance(settings, BrokerSettings) and not validation.problems else None,
        problems=sorted_problems(validation.problems),
        warnings=tuple(warnings),
        entries=_relevant(validation),
        secrets=(*validation.secrets, *_within_url(validation)),
    )


def _written(source: Path | None, document: ParsedSource | None, keys: Sequence[str]) -> ParsedSource:
    if source is None:
        return configmap.unwrap(document or ParsedSource(MappingNode((), Origin()), Origin()), is_ours=_is_ours)
    if document is not None:
        raise TypeError("expected a source or a document, got both")
    return configmap.read(source, known=keys, is_ours=_is_ours)


def _is_ours(key: str) -> bool:
    return key.startswith(PREFIX) or key == EMULATOR


def _check_together(root: Origin, validation: Validation, warnings: list[str]) -> None:
    """What no setting can tell by itself. One that was refused already is not held against the others."""
    values = validation.values
    url = values.get("BROKER_URL")
    match values.get("BROKER_TYPE"):
        case BrokerType.RABBITMQ if isinstance(url, Secret):
            if values.get("BROKER_TLS") is True and not url.reveal().lower().startswith("amqps:"):
                message = "expected BROKER_URL to begin with amqps:// since BROKER_TLS is true, got amqp://"
                validation.reject(validation.origins["BROKER_TLS"], "BROKER_TLS", message)
            ignored = [key for key in _URL_PARTS if validation.origins.get(key, Origin()) != Origin()]
            if ignored:
                warnings.append(f"BROKER_URL wins over {', '.join(ignored)}")
        case BrokerType.RABBITMQ if "BROKER_URL" in values:
            _require("BROKER_HOST", "a host name or address, or a BROKER_URL", root, validation)
        case BrokerType.PUBSUB:
            _require("BROKER_PROJECT_ID", "the id of a Google Cloud project", root, validation)
        case _:
            pass


def _require(key: str, expected: str, root: Origin, validation: Validation) -> None:
    if validation.values.get(key) == "" and not validation.is_partial:
        validation.reject(root, key, f"required, but missing; expected {expected}")


def _relevant(validation: Validation) -> tuple[EffectiveSetting, ...]:
    """The effective settings, without the defaults of another broker's."""
    kind = validation.values.get("BROKER_TYPE")
    if validation.problems or not isinstance(kind, BrokerType):
        return ()
    shown = _RELEVANT[kind]
    if validation.values["BROKER_URL"] is not None:
        shown = shown.difference(_URL_PARTS, ("BROKER_TLS",))
    return tuple(e for e in validation.entries if e.key in shown or validation.origins[e.key] != Origin())


def _within_url(validation: Validation) -> tuple[Secret, ...]:
    """The password of the URL, as written and as meant: either may turn up in somebody's error message."""
    url = validation.values.get("BROKER_URL")
    password = urlsplit(url.reveal()).password if isinstance(url, Secret) else None
    return () if not password else (Secret(password), Secret(unquote(password)))
