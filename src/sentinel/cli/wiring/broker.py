"""Builds the publisher, subscriber and dead letters for the broker in the settings.

A driver is imported only when it is chosen, so a process loads no library that it does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypedDict, assert_never

from sentinel.cli.wiring.extras import extra
from sentinel.core.events import Mode
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, Publisher
from sentinel.ports.subscription import DeadLetters, Subscriber
from sentinel.runtime.log import get_logger
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType


class _RabbitMQOptions(TypedDict):
    """The arguments that the RabbitMQ publisher and subscriber share."""

    url: str
    exchange: str
    exchange_type: str
    routing_key: str
    ca_file: Path | None
    observe: Callable[[Connectivity], None]


class _PubSubOptions(TypedDict):
    """The arguments that the Pub/Sub publisher and subscriber share."""

    project_id: str
    topic: str
    create_topic: bool
    emulator_host: str
    credentials_json: str
    observe: Callable[[Connectivity], None]


def build_publisher(broker: BrokerSettings, *, mode: Mode) -> Publisher:
    match broker.type:
        case BrokerType.RABBITMQ:
            with _driver(broker):
                from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
            return RabbitMQPublisher(**_rabbitmq_options(broker), mode=mode)
        case BrokerType.PUBSUB:
            with _driver(broker):
                from sentinel.drivers.pubsub.publisher import PubSubPublisher
            return PubSubPublisher(**_pubsub_options(broker), ordering_key=broker.ordering_key, mode=mode)
        case BrokerType.STDOUT:
            from sentinel.drivers.stdout import StdoutPublisher

            return StdoutPublisher()
        case _:
            assert_never(broker.type)


def build_subscriber(broker: BrokerSettings, *, subscription: str, max_in_flight: int) -> Subscriber:
    """Raises `Misconfigured` if the broker cannot be subscribed to."""
    log = get_logger("subscriber")
    match broker.type:
        case BrokerType.RABBITMQ:
            with _driver(broker):
                from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
            return RabbitMQSubscriber(
                **_rabbitmq_options(broker),
                subscription=subscription,
                max_in_flight=max_in_flight,
                max_hold=broker.longest_hold,
                log=log,
            )
        case BrokerType.PUBSUB:
            with _driver(broker):
                from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
            return PubSubSubscriber(
                **_pubsub_options(broker), subscription=subscription, max_in_flight=max_in_flight, log=log
            )
        case BrokerType.STDOUT:
            raise _cannot_subscribe()
        case _:
            assert_never(broker.type)


def build_dead_letters(broker: BrokerSettings, *, subscription: str) -> DeadLetters:
    """Raises `Misconfigured` if the broker has no dead letters."""
    match broker.type:
        case BrokerType.RABBITMQ:
            with _driver(broker):
                from sentinel.drivers.rabbitmq.dead_letters import RabbitMQDeadLetters
            return RabbitMQDeadLetters(
                url=_rabbitmq_url(broker), subscription=subscription, ca_file=broker.ca_file
            )
        case BrokerType.PUBSUB:
            with _driver(broker):
                from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
            return PubSubDeadLetters(
                project_id=broker.project_id,
                topic=broker.topic,
                subscription=subscription,
                emulator_host=broker.emulator_host,
                credentials_json=_credentials_json(broker),
            )
        case BrokerType.STDOUT:
            raise _cannot_subscribe()
        case _:
            assert_never(broker.type)


def _cannot_subscribe() -> Misconfigured:
    return Misconfigured("BROKER_TYPE: expected rabbitmq or pubsub, because adapters receive events; got stdout")


def _driver(broker: BrokerSettings) -> AbstractContextManager[None]:
    """Wrap the import of the broker's driver, whose extra may not be installed."""
    return extra(broker.type, who=f"BROKER_TYPE: {broker.type}")


def _rabbitmq_options(broker: BrokerSettings) -> _RabbitMQOptions:
    return {
        "url": _rabbitmq_url(broker),
        "exchange": broker.exchange,
        "exchange_type": broker.exchange_type,
        "routing_key": broker.routing_key,
        "ca_file": broker.ca_file,
        "observe": _log_changes("rabbitmq"),
    }


def _rabbitmq_url(broker: BrokerSettings) -> str:
    """The URL, including credentials."""
    from sentinel.drivers.rabbitmq.connection import amqp_url

    if broker.url is not None:
        return broker.url.reveal()
    return amqp_url(
        host=broker.host,
        port=broker.port,
        vhost=broker.vhost,
        username=broker.username,
        password=broker.password.reveal(),
        tls=broker.tls,
    )


def _pubsub_options(broker: BrokerSettings) -> _PubSubOptions:
    return {
        "project_id": broker.project_id,
        "topic": broker.topic,
        "create_topic": broker.create_topic,
        "emulator_host": broker.emulator_host,
        "credentials_json": _credentials_json(broker),
        "observe": _log_changes("pubsub"),
    }


def _credentials_json(broker: BrokerSettings) -> str:
    return "" if broker.credentials_json is None else broker.credentials_json.reveal()


def _log_changes(name: str) -> Callable[[Connectivity], None]:
    log = get_logger(name)

    def observe(change: Connectivity) -> None:
        if change.is_connected:
            log.info("broker.connected", broker=change.broker)
        else:
            log.warning("broker.disconnected", broker=change.broker, reason=change.reason)

    return observe
