"""Which driver publishes, receives and keeps dead letters for the broker that the settings name.

Drivers are imported where one is chosen, so that a process loads only what its configuration asks for.
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
    """The publisher that the broker's settings name."""
    match broker.type:
        case BrokerType.RABBITMQ:
            return _rabbitmq(broker, mode)
        case BrokerType.STDOUT:
            from sentinel.drivers.stdout import StdoutPublisher

            return StdoutPublisher()
        case BrokerType.PUBSUB:
            return _pubsub(broker, mode)
        case _:
            assert_never(broker.type)


def _rabbitmq(broker: BrokerSettings, mode: Mode) -> Publisher:
    with extra("rabbitmq", who="BROKER_TYPE: rabbitmq"):
        from sentinel.drivers.rabbitmq.publisher import RabbitMQPublisher
    return RabbitMQPublisher(
        url=_url_of(broker),
        exchange=broker.exchange,
        exchange_type=broker.exchange_type,
        routing_key=broker.routing_key,
        mode=mode,
        ca_file=broker.ca_file,
        observe=_logged("rabbitmq"),
    )


def _pubsub(broker: BrokerSettings, mode: Mode) -> Publisher:
    _quieten_grpc()
    with extra("pubsub", who="BROKER_TYPE: pubsub"):
        from sentinel.drivers.pubsub.publisher import PubSubPublisher
    return PubSubPublisher(
        project_id=broker.project_id,
        topic=broker.topic,
        create_topic=broker.create_topic,
        ordering_key=broker.ordering_key,
        mode=mode,
        emulator_host=broker.emulator_host,
        observe=_logged("pubsub"),
    )


def _url_of(broker: BrokerSettings) -> str:
    """Where its RabbitMQ is, credentials included."""
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


def _quieten_grpc() -> None:
    """gRPC's own lines on stderr would be neither JSON nor redacted; what goes wrong is told by the driver."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def _logged(name: str) -> Callable[[Connectivity], None]:
    """Writes down when a broker is reached, and when it is lost."""
    log = get_logger(name)

    def observe(change: Connectivity) -> None:
        if change.is_connected:
            log.info("broker.connected", broker=change.broker)
        else:
            log.warning("broker.disconnected", broker=change.broker, reason=change.reason)

    return observe


def build_subscriber(broker: BrokerSettings, *, subscription: str, max_in_flight: int) -> Subscriber:
    """The subscriber that the broker's settings name; raises `Misconfigured`."""
    log = get_logger("subscriber")
    match broker.type:
        case BrokerType.RABBITMQ:
            with extra("rabbitmq", who="BROKER_TYPE: rabbitmq"):
                from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
            return RabbitMQSubscriber(
                url=_url_of(broker),
                exchange=broker.exchange,
                exchange_type=broker.exchange_type,
                routing_key=broker.routing_key,
                subscription=subscription,
                max_in_flight=max_in_flight,
                ca_file=broker.ca_file,
                max_hold=broker.longest_hold,
                observe=_logged("rabbitmq"),
                log=log,
            )
        case BrokerType.PUBSUB:
            _quieten_grpc()
            with extra("pubsub", who="BROKER_TYPE: pubsub"):
                from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
            return PubSubSubscriber(
                project_id=broker.project_id,
                topic=broker.topic,
                create_topic=broker.create_topic,
                subscription=subscription,
                max_in_flight=max_in_flight,
                emulator_host=broker.emulator_host,
                observe=_logged("pubsub"),
                log=log,
            )
        case BrokerType.STDOUT:
            raise _nothing_to_receive()
        case _:
            assert_never(broker.type)


def build_dead_letters(broker: BrokerSettings, *, subscription: str) -> DeadLetters:
    """The dead letters of a subscription; raises `Misconfigured`."""
    match broker.type:
        case BrokerType.RABBITMQ:
            with extra("rabbitmq", who="BROKER_TYPE: rabbitmq"):
                from sentinel.drivers.rabbitmq.dead_letters import RabbitMQDeadLetters
            return RabbitMQDeadLetters(url=_url_of(broker), subscription=subscription, ca_file=broker.ca_file)
        case BrokerType.PUBSUB:
            _quieten_grpc()
            with extra("pubsub", who="BROKER_TYPE: pubsub"):
                from sentinel.drivers.pubsub.dead_letters import PubSubDeadLetters
            return PubSubDeadLetters(
                project_id=broker.project_id,
                topic=broker.topic,
                subscription=subscription,
                emulator_host=broker.emulator_host,
            )
        case BrokerType.STDOUT:
            raise _nothing_to_receive()
        case _:
            assert_never(broker.type)


def _nothing_to_receive() -> Misconfigured:
    return Misconfigured("BROKER_TYPE: expected rabbitmq or pubsub, for adapters receive events; got stdout")
