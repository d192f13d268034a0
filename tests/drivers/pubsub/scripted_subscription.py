"""A Pub/Sub subscription that says what it is told to say, and writes down what it was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio  # type: ignore[import-untyped]  # it ships no types
from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]  # it ships no types
from google.pubsub_v1.types import (
    AcknowledgeRequest,
    GetSubscriptionRequest,
    GetTopicRequest,
    ModifyAckDeadlineRequest,
    PublishRequest,
    PublishResponse,
    PubsubMessage,
    PullRequest,
    PullResponse,
    ReceivedMessage,
    Subscription,
    Topic,
)

from tests.support.brokers.pubsub import Verdict


class FakeSubscription:
    """One subscription, its messages handed in by the test."""

    def __init__(self) -> None:
        self.host = ""
        self.topic = ""
        """Which topic every subscription claims to be of; that of its name where none is given."""
        self.on_look: Callable[[], Verdict] = lambda: None
        self.on_pull: Callable[[], Verdict] = lambda: None
        self.on_acknowledge: Callable[[], Verdict] = lambda: None
        self.asked_for: list[int] = []
        """How many messages each pull wanted at most."""
        self.acknowledged: list[str] = []
        self.leases: list[tuple[str, int]] = []
        self.published: list[PubsubMessage] = []
        self.changed = asyncio.Condition()
        """Notified of everything that is noted down here."""
        self._waiting: deque[ReceivedMessage] = deque()
        self._arrival = asyncio.Event()

    def deliver(self, ack_id: str, *, message_id: str = "m-1") -> None:
        message = PubsubMessage(message_id=message_id, data=b"junk", publish_time={"seconds": 1_772_366_400})
        self._waiting.append(ReceivedMessage(ack_id=ack_id, message=message))
        self._arrival.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(holds)

    async def get_topic(self, request: GetTopicRequest, context: grpc.aio.ServicerContext) -> Topic:
        await _judge(context, self.on_look())
        return Topic(name=request.topic)

    async def get_subscription(
        self, request: GetSubscriptionRequest, context: grpc.aio.ServicerContext
    ) -> Subscription:
        await _judge(context, self.on_look())
        is_dead = request.subscription.endswith("-dead-letters")
        topic = request.subscription.replace("/subscriptions/", "/topics/") if is_dead else self.topic
        return Subscription(name=request.subscription, topic=topic)

    async def pull(self, request: PullRequest, context: grpc.aio.ServicerContext) -> PullResponse:
        self.asked_for.append(request.max_messages)
        await self._tell()
        await _judge(context, self.on_pull())
        while not self._waiting:
            self._arrival.clear()
            await self._arrival.wait()
        count = min(request.max_messages, len(self._waiting))
        return PullResponse(received_messages=[self._waiting.popleft() for _ in range(count)])

    async def acknowledge(self, request: AcknowledgeRequest, context: grpc.aio.ServicerContext) -> Any:
        verdict = self.on_acknowledge()
        self.acknowledged += request.ack_ids
        await self._tell()
        await _judge(context, verdict)
        return Empty()

    async def modify(self, request: ModifyAckDeadlineRequest, context: grpc.aio.ServicerContext) -> Any:
        self.leases += [(ack_id, request.ack_deadline_seconds) for ack_id in request.ack_ids]
        await self._tell()
        return Empty()

    async def publish(self, request: PublishRequest, context: grpc.aio.ServicerContext) -> PublishResponse:
        self.published += request.messages
        return PublishResponse(message_ids=["1"] * len(request.messages))

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


async def _judge(context: grpc.aio.ServicerContext, verdict: Verdict) -> None:
    if verdict is not None:
        await context.abort(verdict, "said by a test")


@asynccontextmanager
async def fake_subscription(topic: str) -> AsyncIterator[FakeSubscription]:
    service = FakeSubscription()
    service.topic = topic
    server = grpc.aio.server()
    publisher = {
        "GetTopic": _handler(service.get_topic, GetTopicRequest, Topic),
        "Publish": _handler(service.publish, PublishRequest, PublishResponse),
    }
    subscriber = {
        "GetSubscription": _handler(service.get_subscription, GetSubscriptionRequest, Subscription),
        "Pull": _handler(service.pull, PullRequest, PullResponse),
        "Acknowledge": _handler(service.acknowledge, AcknowledgeRequest),
        "ModifyAckDeadline": _handler(service.modify, ModifyAckDeadlineRequest),
    }
    for name, handlers in (("Publisher", publisher), ("Subscriber", subscriber)):
        generic = grpc.method_handlers_generic_handler(f"google.pubsub.v1.{name}", handlers)
        server.add_generic_rpc_handlers([generic])
    service.host = f"localhost:{server.add_insecure_port('localhost:0')}"
    await server.start()
    try:
        yield service
    finally:
        await server.stop(None)


def _handler(method: Callable[..., object], request: Any, response: Any = None) -> grpc.RpcMethodHandler:
    serialize = Empty.SerializeToString if response is None else response.serialize
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request.deserialize, response_serializer=serialize
    )
