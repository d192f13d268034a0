"""Builds the publisher, subscriber and dead letters for the broker in the settings.

A driver is imported only when it is chosen, so a process loads no library that it does not need.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import assert_never

from sentinel.cli.wiring.extras import extra
from sentinel.core.events import Mode
from sentinel.ports.errors import Misconfigured
from sentinel.ports.publisher import Connectivity, Publisher
from sentinel.ports.subscription import DeadLetters, Subscriber
from sentinel.runtime.log import get_logger
from sentinel.runtime.settings.broker import BrokerSettings, BrokerType


def build_publisher(broker: BrokerSettings, *, mode: Mode) -> Publisher:
    match broker.type:
        case BrokerType.RABBITMQ:
            with extra("rabbitmq", who="BROKER_TYPE: rabbitmq"):
                from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
            return RabbitMQPublisher(
                url=_rabbitmq_url(broker),
                exchange=broker.exchange,
                exchange_type=broker.exchange_type,
                routing_key=broker.routing_key,
                mode=mode,
                ca_file=broker.ca_file,
                observe=_log_changes("rabbitmq"),
            )
        case BrokerType.PUBSUB:
            _silence_grpc()
            with extra("pubsub", who="BROKER_TYPE: pubsub"):
                from sentinel.drivers.pubsub.publisher import PubSubPublisher
            return PubSubPublisher(
                project_id=broker.project_id,
                topic=broker.topic,
                create_topic=broker.create_topic,
                ordering_key=broker.ordering_key,
                mode=mode,
                emulator_host=broker.emulator_host,
                observe=_log_changes("pubsub"),
            )
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
            with extra("rabbitmq", who="BROKER_TYPE: rabbitmq"):
                from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
            return RabbitMQSubscriber(
                url=_rabbitmq_url(broker),
                exchange=broker.exchange,
                exchange_type=broker.exchange_type,
                routing_key=broker.routing_key,
                subscription=subscription,
                max_in_flight=max_in_flight,
                ca_file=broker.ca_file,
                max_hold=broker.longest_hold,
                observe=_log_changes("rabbitmq"),
                log=log,
            )
        case BrokerType.PUBSUB:
            _silence_grpc()
            with extra("pubsub", who="BROKER_TYPE: pubsub"):
                from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
            return PubSubSubscriber(
                project_id=broker.project_id,
                topic=broker.topic,
                create_topic=broker.create_topic,
                subscription=subscription,
                max_in_flight=max_in_flight,
                emulator_host=broker.emulator_host,
                observe=_log_changes("pubsub"),
                log=log,
            )
        case BrokerType.STDOUT:
            raise _cannot_subscribe()
        case _:
            assert_never(broker.type)


def build_dead_letters(broker: BrokerSettings, *, subscription: str) -> DeadLetters:
    """Raises `Misconfigured` if the broker has no dead letters."""
    match broker.type:
        case BrokerType.RABBITMQ:
            with extra("rabbitmq", who="BROKER_TYPE: rabbitmq"):
                from sentinel.drivers.rabbitmq.dead_letters import RabbitMQDeadLetters
            return RabbitMQDeadLetters(
                url=_rabbitmq_url(broker), subscription=subscription, ca_file=broker.ca_file
            )
        case BrokerType.PUBSUB:
            _silence_grpc()
            with extra("pubsub", who="BROKER_TYPE: pubsub"):
                from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
            return PubSubDeadLetters(
                project_id=broker.project_id,
                topic=broker.topic,
                subscription=subscription,
                emulator_host=broker.emulator_host,
            )
        case BrokerType.STDOUT:
            raise _cannot_subscribe()
        case _:
            assert_never(broker.type)


def _cannot_subscribe() -> Misconfigured:
    return Misconfigured("BROKER_TYPE: expected rabbitmq or pubsub, because adapters receive events; got stdout")


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


def _silence_grpc() -> None:
    """Turn off gRPC's output on stderr, which is neither JSON nor redacted; the driver reports errors itself."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def _log_changes(name: str) -> Callable[[Connectivity], None]:
    log = get_logger(name)

    def observe(change: Connectivity) -> None:
        if change.is_connected:
            log.info("broker.connected", broker=change.broker)
        else:
            log.warning("broker.disconnected", broker=change.broker, reason=change.reason)

    return observe
