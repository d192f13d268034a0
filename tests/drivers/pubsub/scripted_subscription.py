"""A fake Pub/Sub subscription whose errors are set by the test, and which records all calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.empty_pb2 import Empty
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

from tests.support.brokers.pubsub import CallContext, CallError, abort_on, always, handler, serve


class FakeSubscription:
    """One subscription, with messages added by the test."""

    def __init__(self, topic: str) -> None:
        self.host = ""
        self.topic = topic
        """The topic of every subscription that is not for dead letters."""
        self.on_get: Callable[[], CallError] = always(None)
        self.on_pull: Callable[[], CallError] = always(None)
        self.on_acknowledge: Callable[[], CallError] = always(None)
        self.pull_limits: list[int] = []
        """`max_messages` of each pull."""
        self.acknowledged: list[str] = []
        self.leases: list[tuple[str, int]] = []
        self.published: list[PubsubMessage] = []
        self.changed = asyncio.Condition()
        """Notified of every recorded call."""
        self._waiting: deque[ReceivedMessage] = deque()
        self._arrival = asyncio.Event()

    def deliver(self, ack_id: str, *, message_id: str = "m-1") -> None:
        message = PubsubMessage(message_id=message_id, data=b"junk", publish_time={"seconds": 1_772_366_400})
        self._waiting.append(ReceivedMessage(ack_id=ack_id, message=message))
        self._arrival.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(condition)

    async def get_topic(self, request: GetTopicRequest, context: CallContext) -> Topic:
        await abort_on(self.on_get(), context)
        return Topic(name=request.topic)

    async def get_subscription(self, request: GetSubscriptionRequest, context: CallContext) -> Subscription:
        await abort_on(self.on_get(), context)
        is_for_dead_letters = request.subscription.endswith("-dead-letters")
        topic = request.subscription.replace("/subscriptions/", "/topics/") if is_for_dead_letters else self.topic
        return Subscription(name=request.subscription, topic=topic)

    async def pull(self, request: PullRequest, context: CallContext) -> PullResponse:
        self.pull_limits.append(request.max_messages)
        await self._notify()
        await abort_on(self.on_pull(), context)
        while not self._waiting:
            self._arrival.clear()
            await self._arrival.wait()
        count = min(request.max_messages, len(self._waiting))
        return PullResponse(received_messages=[self._waiting.popleft() for _ in range(count)])

    async def acknowledge(self, request: AcknowledgeRequest, context: CallContext) -> Any:
        error = self.on_acknowledge()
        self.acknowledged += request.ack_ids
        await self._notify()
        await abort_on(error, context)
        return Empty()

    async def modify(self, request: ModifyAckDeadlineRequest, context: CallContext) -> Any:
        self.leases += [(ack_id, request.ack_deadline_seconds) for ack_id in request.ack_ids]
        await self._notify()
        return Empty()

    async def publish(self, request: PublishRequest, context: CallContext) -> PublishResponse:
        self.published += request.messages
        return PublishResponse(message_ids=["1"] * len(request.messages))

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def fake_subscription(topic: str) -> AsyncIterator[FakeSubscription]:
    service = FakeSubscription(topic)
    publisher = {
        "GetTopic": handler(service.get_topic, GetTopicRequest, Topic),
        "Publish": handler(service.publish, PublishRequest, PublishResponse),
    }
    subscriber = {
        "GetSubscription": handler(service.get_subscription, GetSubscriptionRequest, Subscription),
        "Pull": handler(service.pull, PullRequest, PullResponse),
        "Acknowledge": handler(service.acknowledge, AcknowledgeRequest),
        "ModifyAckDeadline": handler(service.modify, ModifyAckDeadlineRequest),
    }
    async with serve(Publisher=publisher, Subscriber=subscriber) as service.host:
        yield service
