"""The dead letters of a subscription on Pub/Sub.

Pub/Sub cannot look into a subscription. Messages are pulled without an answer and given back at the end, which
hides them from others meanwhile; what a process that dies has pulled shows up again after a minute. Pub/Sub
keeps dead letters for as long as the subscription says, seven days unless told otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from google.api_core import exceptions
from google.pubsub_v1.types import PublishRequest, PullRequest, ReceivedMessage

from sentinel.drivers.pubsub import client, received_messages
from sentinel.drivers.pubsub.client import CALL_FAILED, DEFAULT_ENDPOINT, describe
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, DeadLetter

PULL = timedelta(seconds=3)
"""How long a pull waits before it is believed that there is no more."""

_CALL = timedelta(seconds=10)
_LEASE = timedelta(seconds=60)
_AT_ONCE = 1_000
_NO_LIMIT = 2**62

_FOR_A_PERSON = (exceptions.InvalidArgument, exceptions.PermissionDenied, exceptions.Unauthenticated)


class PubSubDeadLetters:
    """`ports.subscription.DeadLetters` on a Pub/Sub subscription."""

    def __init__(
        self,
        *,
        project_id: str,
        topic: str,
        subscription: str,
        emulator_host: str = "",
        endpoint: str = DEFAULT_ENDPOINT,
        pull: timedelta = PULL,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`topic` is the one that replays go to: that of the events."""
        self._topic = f"projects/{project_id}/topics/{topic}"
        self._name = subscription
        self._subscription = f"projects/{project_id}/subscriptions/{subscription}{DEAD_LETTERS_SUFFIX}"
        self._emulator_host = emulator_host
        self._endpoint = endpoint
        self._wait = pull
        self._now = now

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        async with self._connected() as connection, self._pulled(connection, limit) as letters:
            return [received_messages.dead_letter(letter.message) for letter in letters.values()]

    async def replay(self, letter_id: str | None = None) -> int:
        async with self._connected() as connection, self._pulled(connection, _NO_LIMIT) as letters:
            chosen = _chosen(letters.values(), letter_id)
            for letter in chosen:
                await self._replay(connection, letter)
                await self._forget(connection, letter)
                del letters[letter.message.message_id]
            return len(chosen)

    async def drop(self, letter_id: str | None = None) -> int:
        async with self._connected() as connection, self._pulled(connection, _NO_LIMIT) as letters:
            chosen = _chosen(letters.values(), letter_id)
            for letter in chosen:
                await self._forget(connection, letter)
                del letters[letter.message.message_id]
            return len(chosen)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[client.PubSubConnection]:
        connection = await client.connect(endpoint=self._endpoint, emulator_host=self._emulator_host)
        try:
            yield connection
        except _FOR_A_PERSON as error:
            raise Misconfigured(f"{self._subscription}: {describe(error)}") from error
        except CALL_FAILED as error:
            raise Unavailable(f"{self._emulator_host or self._endpoint}: {describe(error)}") from error
        finally:
            await connection.close()

    @asynccontextmanager
    async def _pulled(
        self, connection: client.PubSubConnection, limit: int
    ) -> AsyncIterator[dict[str, ReceivedMessage]]:
        """The letters by their message ids, the oldest first; those that are left in the end are given back."""
        letters: dict[str, ReceivedMessage] = {}
        try:
            while len(letters) < limit:
                batch = await self._pull(connection, min(limit - len(letters), _AT_ONCE))
                fresh = [each for each in batch if each.message.message_id not in letters]
                letters.update((each.message.message_id, each) for each in batch)
                if not fresh:
                    break
                await self._lease(connection, fresh, _LEASE)
            in_order = sorted(letters.items(), key=lambda item: item[1].message.publish_time)
            letters = dict(in_order)
            yield letters
        finally:
            await self._lease(connection, list(letters.values()), timedelta(0))

    async def _pull(self, connection: client.PubSubConnection, most: int) -> Sequence[ReceivedMessage]:
        request = PullRequest(subscription=self._subscription, max_messages=most)
        try:
            answer = await connection.subscriber.pull(request, retry=None, timeout=self._wait.total_seconds())
        except exceptions.NotFound:
            return []  # nobody has ever given anything up
        except exceptions.DeadlineExceeded:
            return []
        return list(answer.received_messages)

    async def _lease(
        self, connection: client.PubSubConnection, letters: Sequence[ReceivedMessage], lease: timedelta
    ) -> None:
        for begin in range(0, len(letters), _AT_ONCE):
            await connection.subscriber.modify_ack_deadline(
                subscription=self._subscription,
                ack_ids=[letter.ack_id for letter in letters[begin : begin + _AT_ONCE]],
                ack_deadline_seconds=round(lease.total_seconds()),
                retry=None,
                timeout=_CALL.total_seconds(),
            )

    async def _replay(self, connection: client.PubSubConnection, letter: ReceivedMessage) -> None:
        replay = received_messages.as_replay(letter.message, subscription=self._name, now=self._now())
        try:
            await connection.publisher.publish(
                PublishRequest(topic=self._topic, messages=[replay]), retry=None, timeout=_CALL.total_seconds()
            )
        except exceptions.NotFound as error:
            raise Misconfigured(f"topic {self._topic!r} does not exist") from error

    async def _forget(self, connection: client.PubSubConnection, letter: ReceivedMessage) -> None:
        await connection.subscriber.acknowledge(
            subscription=self._subscription, ack_ids=[letter.ack_id], retry=None, timeout=_CALL.total_seconds()
        )


def _chosen(letters: Iterable[ReceivedMessage], letter_id: str | None) -> list[ReceivedMessage]:
    return [
        letter
        for letter in letters
        if letter_id is None or received_messages.dead_letter(letter.message).id == letter_id
    ]
