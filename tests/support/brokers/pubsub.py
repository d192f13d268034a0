"""Pub/Sub as tests need it: Google's emulator, what arrived there, and a service that says what it never does."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import grpc.aio  # type: ignore[import-untyped]  # it ships no types
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import (
    GetTopicRequest,
    PublishRequest,
    PublishResponse,
    PubsubMessage,
    PullRequest,
    Subscription,
    Topic,
)

from sentinel.ports.subscription import Message
from tests.support.brokers.rabbitmq import TIMEOUT, unique
from tools.services import EMULATOR, PubSubEmulator, ServiceMissing, free_port

PROJECT = "test-project"
REQUIRES_ALL = os.environ.get("SENTINEL_REQUIRE_ALL") == "1"
_AT_ONCE = 1_000
"""As many as one pull may bring."""


def emulator_host() -> str:
    """The emulator that all tests share; what is made on it has names of its own."""
    host = os.environ.get(EMULATOR, "")
    if not host:
        go_without(f"no Pub/Sub emulator ({EMULATOR} is not set): run `make test`")
    return host


@contextmanager
def private_emulator() -> Iterator[PrivateEmulator]:
    """An emulator that is not shared: it may be killed, and who does so starts it again."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            emulator = PubSubEmulator(port=free_port(), directory=Path(directory))
        except ServiceMissing as error:
            go_without(str(error))
        with emulator:
            yield PrivateEmulator(emulator)


def go_without(reason: str) -> NoReturn:
    """Skips the test, where parts may be missing."""
    if REQUIRES_ALL:
        pytest.fail(reason)
    pytest.skip(reason)


class PrivateEmulator:
    def __init__(self, emulator: PubSubEmulator) -> None:
        self._emulator = emulator
        self.host = emulator.host

    async def kill(self) -> None:
        """As a power cut would; it keeps nothing."""
        await asyncio.to_thread(self._emulator.kill)

    async def start(self) -> None:
        await asyncio.to_thread(self._emulator.start)


class Inbox:
    """A topic and a subscription to it; what was published can be received."""

    def __init__(
        self, topic: str, subscription: str, publisher: PublisherAsyncClient, subscriber: SubscriberAsyncClient
    ) -> None:
        self.topic = topic
        self._path = f"projects/{PROJECT}/topics/{topic}"
        self._subscription = f"projects/{PROJECT}/subscriptions/{subscription}"
        self._publisher = publisher
        self._subscriber = subscriber
        self._arrived: deque[PubsubMessage] = deque()

    async def create_topic(self) -> None:
        await self._publisher.create_topic(name=self._path, timeout=TIMEOUT.total_seconds())

    async def delete_topic(self) -> None:
        await self._publisher.delete_topic(topic=self._path, timeout=TIMEOUT.total_seconds())

    async def subscribe(self, *, is_ordered: bool = False) -> None:
        wanted = Subscription(name=self._subscription, topic=self._path, enable_message_ordering=is_ordered)
        await self._subscriber.create_subscription(wanted, timeout=TIMEOUT.total_seconds())

    async def _publish(self, data: bytes) -> None:
        request = PublishRequest(topic=self._path, messages=[PubsubMessage(data=data)])
        await self._publisher.publish(request, timeout=TIMEOUT.total_seconds())

    async def remove(self) -> None:
        """Leaves nothing behind, whatever the test has left of it."""
        with suppress(GoogleAPICallError):
            await self._subscriber.delete_subscription(subscription=self._subscription, retry=None, timeout=2)
        with suppress(GoogleAPICallError):
            await self._publisher.delete_topic(topic=self._path, retry=None, timeout=2)

    async def receive(self, count: int, *, timeout: timedelta = TIMEOUT) -> list[PubsubMessage]:
        """The next so many messages."""
        async with asyncio.timeout(timeout.total_seconds()):
            while len(self._arrived) < count:
                await self._pull()
        return [self._arrived.popleft() for _ in range(count)]

    async def receive_waiting(self) -> list[PubsubMessage]:
        """Everything that the topic has taken so far."""
        # Nobody can ask a subscription what it holds; but the emulator delivers in the order of arrival.
        last = unique("message").encode()
        await self._publish(last)
        received = await self.receive(1)
        while received[-1].data != last:
            received += await self.receive(1)
        return received[:-1]

    async def _pull(self) -> None:
        wanted = PullRequest(subscription=self._subscription, max_messages=_AT_ONCE)
        pulled = await self._subscriber.pull(wanted, timeout=TIMEOUT.total_seconds())
        taken = [received.ack_id for received in pulled.received_messages]
        if taken:
            await self._subscriber.acknowledge(subscription=self._subscription, ack_ids=taken)
        self._arrived.extend(received.message for received in pulled.received_messages)


@asynccontextmanager
async def open_inbox(
    host: str, *, topic: str | None = None, is_made: bool = True, is_ordered: bool = False
) -> AsyncIterator[Inbox]:
    """A inbox on the emulator; if it is not made, the test makes its parts when it likes."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(host, options) as one, grpc.aio.insecure_channel(host, options) as other:
        box = Inbox(
            topic or unique("topic"),
            unique("subscription"),
            PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=one)),
            SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=other)),
        )
        if is_made:
            await box.create_topic()
            await box.subscribe(is_ordered=is_ordered)
        yield box
        await box.remove()


async def publish(host: str, topic: str, body: bytes) -> None:
    """Publishes a message without any attributes, as no publisher of ours would."""
    async with grpc.aio.insecure_channel(host, [("grpc.enable_http_proxy", 0)]) as channel:
        publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))
        request = PublishRequest(topic=f"projects/{PROJECT}/topics/{topic}", messages=[PubsubMessage(data=body)])
        await publisher.publish(request, timeout=TIMEOUT.total_seconds())


async def remove_subscription(host: str, name: str) -> None:
    async with grpc.aio.insecure_channel(host, [("grpc.enable_http_proxy", 0)]) as channel:
        subscriber = SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))
        path = f"projects/{PROJECT}/subscriptions/{name}"
        await subscriber.delete_subscription(subscription=path, timeout=TIMEOUT.total_seconds())


def as_message(received: PubsubMessage) -> Message:
    """A message as the port has it."""
    attributes = dict(received.attributes)
    content_type = attributes.pop("content-type")
    bare = {name.removeprefix("ce-"): value for name, value in attributes.items()}
    return Message(received.data, content_type, bare)


Verdict: TypeAlias = "grpc.StatusCode | None"
"""What the service says to a call; None for yes."""


def _yes(*_: object) -> Verdict:
    return None


class FakeService:
    """A topic that exists, on a service that says what it is told to say."""

    def __init__(self) -> None:
        self.host = ""
        self.on_look: Callable[[], Verdict] = _yes
        self.on_create: Callable[[], Verdict] = _yes
        self.on_publish: Callable[[PublishRequest], Verdict] = _yes
        self.on_authorization: Callable[[str], Verdict] = _yes
        self.is_answering = asyncio.Event()
        """While it is not set, publishing gets no answer."""
        self.is_answering.set()
        self.looks = self.creations = 0
        self.requests: list[PublishRequest] = []
        """Every one, whatever it was told."""
        self.taken: list[PubsubMessage] = []
        self.forgotten_ids = 0
        """How many ids are missing from an answer."""
        self.most_at_once = 0
        self._at_once = 0

    async def get_topic(self, request: GetTopicRequest, context: grpc.aio.ServicerContext) -> Topic:
        self.looks += 1
        await self._judge(context, self.on_look())
        return Topic(name=request.topic)

    async def create_topic(self, request: Topic, context: grpc.aio.ServicerContext) -> Topic:
        self.creations += 1
        await self._judge(context, self.on_create())
        return request

    async def publish(self, request: PublishRequest, context: grpc.aio.ServicerContext) -> PublishResponse:
        self.requests.append(request)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.is_answering.wait()
            await self._judge(context, self.on_publish(request))
        finally:
            self._at_once -= 1
        self.taken += request.messages
        count = len(request.messages) - self.forgotten_ids
        return PublishResponse(message_ids=[str(number) for number in range(count)])

    async def _judge(self, context: grpc.aio.ServicerContext, verdict: Verdict) -> None:
        given = dict(context.invocation_metadata()).get("authorization", "")
        refusal = self.on_authorization(str(given)) or verdict
        if refusal is not None:
            await context.abort(refusal, "said by a test")


@asynccontextmanager
async def fake_service(*, tls: grpc.ServerCredentials | None = None) -> AsyncIterator[FakeService]:
    service = FakeService()
    handlers = {
        "GetTopic": _handler(service.get_topic, GetTopicRequest, Topic),
        "CreateTopic": _handler(service.create_topic, Topic, Topic),
        "Publish": _handler(service.publish, PublishRequest, PublishResponse),
    }
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("google.pubsub.v1.Publisher", handlers)])
    address = "localhost:0"
    port = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls)
    service.host = f"localhost:{port}"
    await server.start()
    try:
        yield service
    finally:
        await server.stop(None)


def _handler(method: Callable[..., object], request: Any, response: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request.deserialize, response_serializer=response.serialize
    )
