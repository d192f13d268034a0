"""Pub/Sub for tests: Google's emulator, an inbox on it, and a fake service for errors it never returns."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

import grpc.aio
from google.api_core.exceptions import GoogleAPICallError
from google.protobuf.empty_pb2 import Empty
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

from sentinel.core.events import Mode
from sentinel.drivers.pubsub.publish_requests import RequestLimits
from sentinel.drivers.pubsub.publisher import PubSubPublisher
from sentinel.ports.publisher import Connectivity
from sentinel.ports.subscription import Message
from sentinel.runtime.backoff import Backoff
from tests.support.brokers.rabbitmq import AT_ONCE, TIMEOUT, unique
from tests.support.missing_service import skip_or_fail
from tools.services.pubsub import EMULATOR_VARIABLE, PubSubEmulator
from tools.services.server import ServiceMissing, free_port

PROJECT = "test-project"
CallContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_MAX_PULL = 1_000
"""The limit of one pull."""


def emulator_host() -> str:
    """Return the host of the emulator that all tests share."""
    host = os.environ.get(EMULATOR_VARIABLE, "")
    if not host:
        skip_or_fail(f"no Pub/Sub emulator ({EMULATOR_VARIABLE} is not set): run `make test`")
    return host


@contextmanager
def private_emulator() -> Iterator[PrivateEmulator]:
    """Start an emulator that is not shared; a test that kills it starts it again."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            emulator = PubSubEmulator(port=free_port(), directory=Path(directory))
        except ServiceMissing as error:
            skip_or_fail(str(error))
        with emulator:
            yield PrivateEmulator(emulator)


class PrivateEmulator:
    def __init__(self, emulator: PubSubEmulator) -> None:
        self._emulator = emulator
        self.host = emulator.host

    async def kill(self) -> None:
        """Kill it; it keeps nothing."""
        await asyncio.to_thread(self._emulator.kill)

    async def start(self) -> None:
        await asyncio.to_thread(self._emulator.start)


class Inbox:
    """A topic and a subscription for one test, which receives published messages from it."""

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
        """Delete what the test has left of it."""
        with suppress(GoogleAPICallError):
            await self._subscriber.delete_subscription(subscription=self._subscription, retry=None, timeout=60)
        with suppress(GoogleAPICallError):
            await self._publisher.delete_topic(topic=self._path, retry=None, timeout=60)

    async def receive(self, count: int, *, timeout: timedelta = TIMEOUT) -> list[PubsubMessage]:
        """Receive the next `count` messages."""
        async with asyncio.timeout(timeout.total_seconds()):
            while len(self._arrived) < count:
                await self._pull()
        return [self._arrived.popleft() for _ in range(count)]

    async def receive_waiting(self) -> list[PubsubMessage]:
        """Receive everything that was published so far."""
        # A subscription has no count of its messages, but the emulator delivers in the order of arrival.
        last = unique("message").encode()
        await self._publish(last)
        received = await self.receive(1)
        while received[-1].data != last:
            received += await self.receive(1)
        return received[:-1]

    async def _pull(self) -> None:
        wanted = PullRequest(subscription=self._subscription, max_messages=_MAX_PULL)
        pulled = await self._subscriber.pull(wanted, timeout=TIMEOUT.total_seconds())
        ack_ids = [received.ack_id for received in pulled.received_messages]
        if ack_ids:
            await self._subscriber.acknowledge(subscription=self._subscription, ack_ids=ack_ids)
        self._arrived.extend(received.message for received in pulled.received_messages)


@asynccontextmanager
async def open_inbox(
    host: str, *, topic: str | None = None, is_created: bool = True, is_ordered: bool = False
) -> AsyncIterator[Inbox]:
    """Open an inbox on the emulator; unless `is_created`, the test creates its topic and subscription."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(host, options) as one, grpc.aio.insecure_channel(host, options) as other:
        inbox = Inbox(
            topic or unique("topic"),
            unique("subscription"),
            PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=one)),
            SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=other)),
        )
        if is_created:
            await inbox.create_topic()
            await inbox.subscribe(is_ordered=is_ordered)
        yield inbox
        await inbox.remove()


async def publish_body(host: str, topic: str, body: bytes) -> None:
    """Publish a message without attributes, unlike our publishers."""
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
    """Convert it to the message of the port."""
    attributes = dict(received.attributes)
    content_type = attributes.pop("content-type")
    bare = {name.removeprefix("ce-"): value for name, value in attributes.items()}
    return Message(received.data, content_type, bare)


CallError: TypeAlias = "grpc.StatusCode | None"
"""The error of a call; None for success."""


def always(error: CallError) -> Callable[..., CallError]:
    return lambda *_: error


def in_turn(*errors: CallError) -> Callable[..., CallError]:
    """Return these, one per call, and success from then on."""
    remaining = iter(errors)
    return lambda *_: next(remaining, None)


async def abort_on(error: CallError, context: CallContext) -> None:
    if error is not None:
        await context.abort(error, "set by a test")


class FakeService:
    """A publisher service with one topic, whose errors are set by the test."""

    def __init__(self) -> None:
        self.host = ""
        self.on_get: Callable[[], CallError] = always(None)
        self.on_create: Callable[[], CallError] = always(None)
        self.on_publish: Callable[[PublishRequest], CallError] = always(None)
        self.on_authorization: Callable[[str], CallError] = always(None)
        self.is_responding = asyncio.Event()
        """While it is not set, publish calls get no response."""
        self.is_responding.set()
        self.gets = self.creations = 0
        self.requests: list[PublishRequest] = []
        """All publish requests, including failed ones."""
        self.accepted: list[PubsubMessage] = []
        self.missing_ids = 0
        """How many ids are missing from a response."""
        self.max_concurrent = 0
        self._concurrent = 0

    async def get_topic(self, request: GetTopicRequest, context: CallContext) -> Topic:
        self.gets += 1
        await self._check(context, self.on_get())
        return Topic(name=request.topic)

    async def create_topic(self, request: Topic, context: CallContext) -> Topic:
        self.creations += 1
        await self._check(context, self.on_create())
        return request

    async def publish(self, request: PublishRequest, context: CallContext) -> PublishResponse:
        self.requests.append(request)
        self._concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self._concurrent)
        try:
            await self.is_responding.wait()
            await self._check(context, self.on_publish(request))
        finally:
            self._concurrent -= 1
        self.accepted += request.messages
        count = len(request.messages) - self.missing_ids
        return PublishResponse(message_ids=[str(number) for number in range(count)])

    async def _check(self, context: CallContext, error: CallError) -> None:
        authorization = dict(context.invocation_metadata() or ()).get("authorization", "")
        await abort_on(self.on_authorization(str(authorization)) or error, context)


@asynccontextmanager
async def fake_service(*, tls: grpc.ServerCredentials | None = None) -> AsyncIterator[FakeService]:
    service = FakeService()
    publisher = {
        "GetTopic": handler(service.get_topic, GetTopicRequest, Topic),
        "CreateTopic": handler(service.create_topic, Topic, Topic),
        "Publish": handler(service.publish, PublishRequest, PublishResponse),
    }
    async with serve(tls=tls, Publisher=publisher) as service.host:
        yield service


@asynccontextmanager
async def serve(
    *, tls: grpc.ServerCredentials | None = None, **services: dict[str, grpc.RpcMethodHandler[Any, Any]]
) -> AsyncIterator[str]:
    """Serve Pub/Sub services by name; yields the host."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    for name, handlers in services.items():
        generic = grpc.method_handlers_generic_handler(f"google.pubsub.v1.{name}", handlers)
        server.add_generic_rpc_handlers([generic])
    address = "localhost:0"
    port = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls)
    await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(None)


def handler(method: Callable[..., object], request: Any, response: Any = None) -> grpc.RpcMethodHandler[Any, Any]:
    """Build a handler; without a `response` type, the response is empty."""
    serialize = Empty.SerializeToString if response is None else response.serialize
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request.deserialize, response_serializer=serialize
    )


class PublisherOptions(TypedDict, total=False):
    create_topic: bool
    mode: Mode
    endpoint: str
    credentials_json: str
    ordering_key: str
    limits: RequestLimits
    window: int
    retry: Backoff
    observe: Callable[[Connectivity], None]


@asynccontextmanager
async def opened_publisher(
    host: str, topic: str = "topic", **options: Unpack[PublisherOptions]
) -> AsyncIterator[PubSubPublisher]:
    """Open a publisher that retries quickly; an empty host uses the endpoint and credentials."""
    options.setdefault("retry", AT_ONCE)
    publisher = PubSubPublisher(project_id=PROJECT, topic=topic, emulator_host=host, **options)
    await publisher.open()
    try:
        yield publisher
    finally:
        await publisher.close()
