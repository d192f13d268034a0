"""The loop as in production: one process per part, and a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import aio_pika
import msgspec

from sentinel.core.adapter import event_target
from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.drivers.pubsub.subscriber import PubSubSubscriber
from sentinel.drivers.rabbitmq.subscriber import RabbitMQSubscriber
from sentinel.ports.subscription import Subscriber
from tests.support.brokers import pubsub
from tests.support.brokers.pubsub import PROJECT, PrivateEmulator
from tests.support.brokers.rabbitmq import TIMEOUT, PrivateRabbitMQ, eventually, unique
from tests.support.loop.resource_loop import ADAPTERS, KINDS, PLURALS, ResourceLoop
from tests.support.processes.service import ApiProcess, Line, SentinelProcess, ServiceProcess


class Broker(Protocol):
    """A real broker that is not shared."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that configure it."""

    def subscriber(self) -> Subscriber:
        """A new subscription."""

    def subscription(self, adapter: str) -> str:
        """The name of an adapter's subscription."""

    async def publish_junk(self, body: bytes) -> None:
        """Publish a message that is not an event."""

    async def kill(self) -> None: ...

    async def start(self) -> None: ...


class RabbitMQBroker:
    def __init__(self, node: PrivateRabbitMQ) -> None:
        self._node = node
        self._exchange = unique("exchange")
        self.environ = {"BROKER_TYPE": "rabbitmq", "BROKER_URL": node.url, "BROKER_EXCHANGE": self._exchange}
        self.kill = node.kill
        self.start = node.start

    def subscriber(self) -> Subscriber:
        return RabbitMQSubscriber(
            url=self._node.url,
            exchange=self._exchange,
            exchange_type="fanout",
            subscription=unique("recorder"),
            max_in_flight=1000,
            max_hold=timedelta(minutes=10),
        )

    def subscription(self, adapter: str) -> str:
        return f"{adapter}-{self._exchange}"

    async def publish_junk(self, body: bytes) -> None:
        async with await aio_pika.connect(self._node.url, timeout=TIMEOUT.total_seconds()) as connection:
            channel = await connection.channel()
            exchange = await channel.get_exchange(self._exchange)
            await exchange.publish(aio_pika.Message(body), routing_key="")


class PubSubBroker:
    def __init__(self, emulator: PrivateEmulator) -> None:
        self._emulator = emulator
        self._topic = unique("topic")
        self.environ = {
            "BROKER_TYPE": "pubsub",
            "BROKER_PROJECT_ID": PROJECT,
            "BROKER_TOPIC": self._topic,
            "BROKER_CREATE_TOPIC": "true",
            "PUBSUB_EMULATOR_HOST": emulator.host,
        }
        self.kill = emulator.kill
        self.start = emulator.start

    def subscriber(self) -> Subscriber:
        return PubSubSubscriber(
            project_id=PROJECT,
            topic=self._topic,
            subscription=unique("recorder"),
            max_in_flight=1000,
            create_topic=True,
            emulator_host=self._emulator.host,
        )

    def subscription(self, adapter: str) -> str:
        return f"{adapter}-{self._topic}"

    async def publish_junk(self, body: bytes) -> None:
        await pubsub.publish_body(self._emulator.host, self._topic, body)


class AdapterProcess(ServiceProcess):
    """`sentinel adapter`."""

    def __init__(self, file: Path, *, environ: Mapping[str, str]) -> None:
        super().__init__(
            (
                "adapter",
                f"--config={file}",
                "--metrics-bind-address=127.0.0.1:0",
                "--health-probe-bind-address=127.0.0.1:0",
            ),
            environ=environ,
        )


class ProcessLoop(ResourceLoop):
    """`sentinel api`, a `sentinel run` for each kind, and a `sentinel adapter` for each adapter."""

    def __init__(self, directory: Path, broker: Broker) -> None:
        super().__init__(directory)
        self.broker = broker
        self._running: dict[str, ServiceProcess] = {}

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, **self.broker.environ}

    def pulse(self, plural: str) -> ServiceProcess:
        return self._running[f"pulse {plural}"]

    def adapter(self, name: str) -> ServiceProcess:
        return self._running[f"adapter {name}"]

    def pids(self) -> dict[str, int]:
        """The ids of all running processes."""
        return {name: process.pid for name, process in self._running.items() if process.is_running}

    async def start_missing(self) -> None:
        ended = [name for name, process in self._running.items() if not process.is_running]
        await asyncio.gather(*(self._kill(name) for name in ended))
        if "api" not in self._running:
            await self._start_api()
        await asyncio.gather(*(self.start_adapter(name) for name in ADAPTERS if not self._has(f"adapter {name}")))
        # Pulses last: without subscriptions their events would be unroutable.
        await asyncio.gather(*(self._start_pulse(each) for each in PLURALS if not self._has(f"pulse {each}")))

    async def kill_all(self) -> None:
        await asyncio.gather(*(self._kill(name) for name in list(self._running)))

    async def start_adapter(self, name: str, *, endpoint: str = "") -> None:
        """`endpoint` may be that of a proxy."""
        environ = {**self.environ, "BROKER_SUBSCRIPTION_ID": self.broker.subscription(name)}
        process = AdapterProcess(self.adapter_file(name, endpoint=endpoint), environ=environ)
        await self._start(f"adapter {name}", process)
        await process.until_event("broker.connected")

    async def kill_adapter(self, name: str) -> None:
        await self._kill(f"adapter {name}")

    @asynccontextmanager
    async def without_adapter(self, name: str) -> AsyncIterator[None]:
        assert await self.adapter(name).stop() == 0
        await self.kill_adapter(name)
        yield
        await self.start_adapter(name)

    @asynccontextmanager
    async def without_api(self) -> AsyncIterator[None]:
        await self._kill("api")
        yield
        await self._start_api()

    @asynccontextmanager
    async def without_broker(self) -> AsyncIterator[None]:
        """Kill the broker inside the context; whether it keeps messages depends on the broker."""
        await self.broker.kill()
        try:
            yield
        finally:
            await self.broker.start()

    async def dead_letters(self, adapter: str, *arguments: str) -> Line:
        """The output of `sentinel adapter dead-letters`."""
        command = ("adapter", "dead-letters", *arguments, "--output=json")
        environ = {**self.environ, "BROKER_SUBSCRIPTION_ID": self.broker.subscription(adapter)}
        async with ServiceProcess(command, environ=environ) as process:
            assert await process.exit_code() == 0, process.stderr
        return msgspec.json.decode(process.stdout, type=Line)

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[EventRecorder]:
        """Record every event that is published inside the context."""
        subscriber = self.broker.subscriber()
        await subscriber.open()
        await eventually(lambda: subscriber.unavailable_reason() is None)
        recorder = EventRecorder(subscriber)
        task = asyncio.create_task(recorder.run())
        try:
            yield recorder
        finally:
            await subscriber.close()
            await task

    async def _start_api(self) -> None:
        process = ApiProcess(
            f"sqlite:///{self.directory / 'fleet.db'}",
            kinds=KINDS,
            directory=self.directory,
            listen=urlsplit(self.url).netloc,
        )
        await self._start("api", process)
        await process.url()

    async def _start_pulse(self, plural: str) -> None:
        settings = {"resource_type": plural, "hyperfleet_api": {"endpoint": self.url, "timeout": "5s"}}
        process = SentinelProcess(self.directory, settings, environ=self.environ)
        await self._start(f"pulse {plural}", process)
        await process.until_event("cycle.done")

    def _has(self, name: str) -> bool:
        return name in self._running

    async def _start(self, name: str, process: ServiceProcess) -> None:
        assert name not in self._running, f"{name} runs already"
        self._running[name] = await process.__aenter__()
        self.processes.append(process)

    async def _kill(self, name: str) -> None:
        await self._running.pop(name).__aexit__(None, None, None)


class EventRecorder:
    """Records the events of a subscription."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._events: list[ReceivedEvent] = []
        self._arrival = asyncio.Condition()

    async def run(self) -> None:
        async for delivery in self._subscriber.deliveries():
            message = delivery.message
            target = event_target.read(
                body=message.body, content_type=message.content_type, attributes=message.attributes
            )
            async with self._arrival:
                self._events.append(target.event)
                self._arrival.notify_all()
            await delivery.ack()

    def events(self, subject: str) -> list[ReceivedEvent]:
        return [event for event in self._events if event.subject == subject]

    async def until(self, subject: str, *, count: int = 1) -> list[ReceivedEvent]:
        """Wait for a number of events about a resource."""
        async with asyncio.timeout(TIMEOUT.total_seconds()), self._arrival:
            while len(self.events(subject)) < count:
                await self._arrival.wait()
        return self.events(subject)
