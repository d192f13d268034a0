"""The dead letters of a subscription on Pub/Sub.

Pub/Sub cannot browse a subscription. Messages are pulled without an ack and requeued at the end, which hides
them from others meanwhile. If the process dies, they reappear after a minute. Pub/Sub keeps dead letters as
long as the subscription is configured to, seven days by default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from google.api_core import exceptions
from google.pubsub_v1.types import ReceivedMessage

from sentinel.drivers.pubsub import client, received_messages
from sentinel.drivers.pubsub.client import CALL_ERRORS, ConnectOptions, PubSubConnection, describe_error
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.ports.subscription import DEAD_LETTERS_SUFFIX, DeadLetter

PULL_TIMEOUT = timedelta(seconds=3)
"""How long a pull waits before the subscription counts as empty."""

_CALL_TIMEOUT = timedelta(seconds=10)
_LEASE = timedelta(seconds=60)
_NO_LIMIT = 2**62

_CONFIGURATION_ERRORS = (exceptions.InvalidArgument, exceptions.PermissionDenied, exceptions.Unauthenticated)


class PubSubDeadLetters:
    """`ports.subscription.DeadLetters` on a Pub/Sub subscription."""

    def __init__(
        self,
        *,
        project_id: str,
        topic: str,
        subscription: str,
        pull_timeout: timedelta = PULL_TIMEOUT,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        **options: Unpack[ConnectOptions],
    ) -> None:
        """`topic` is that of the events; replays are published to it."""
        self._topic = f"projects/{project_id}/topics/{topic}"
        self._name = subscription
        self._subscription = f"projects/{project_id}/subscriptions/{subscription}{DEAD_LETTERS_SUFFIX}"
        self._options = options
        self._pull_timeout = pull_timeout
        self._now = now

    async def peek(self, *, limit: int) -> Sequence[DeadLetter]:
        async with self._connect() as connection, self._pull_letters(connection, limit) as letters:
            return [received_messages.read_dead_letter(letter.message) for letter in letters.values()]

    async def replay(self, letter_id: str | None = None) -> int:
        async with self._connect() as connection, self._pull_letters(connection, _NO_LIMIT) as letters:
            chosen = _with_id(letters.values(), letter_id)
            for letter in chosen:
                await self._publish_replay(connection, letter)
                await self._ack(connection, letter)
                del letters[letter.message.message_id]
            return len(chosen)

    async def drop(self, letter_id: str | None = None) -> int:
        async with self._connect() as connection, self._pull_letters(connection, _NO_LIMIT) as letters:
            chosen = _with_id(letters.values(), letter_id)
            for letter in chosen:
                await self._ack(connection, letter)
                del letters[letter.message.message_id]
            return len(chosen)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[PubSubConnection]:
        connection = await client.connect(**self._options)
        try:
            yield connection
        except _CONFIGURATION_ERRORS as error:
            raise Misconfigured(f"{self._subscription}: {describe_error(error)}") from error
        except CALL_ERRORS as error:
            raise Unavailable(f"{client.server_address(self._options)}: {describe_error(error)}") from error
        finally:
            await connection.close()

    @asynccontextmanager
    async def _pull_letters(
        self, connection: PubSubConnection, limit: int
    ) -> AsyncIterator[dict[str, ReceivedMessage]]:
        """Yield the letters by message id, oldest first. Those that are left at the end are requeued."""
        letters: dict[str, ReceivedMessage] = {}
        try:
            while len(letters) < limit:
                batch = await self._pull(connection, limit - len(letters))
                new = [each for each in batch if each.message.message_id not in letters]
                letters.update((each.message.message_id, each) for each in batch)
                if not new:
                    break
                await self._set_lease(connection, new, _LEASE)
            letters = dict(sorted(letters.items(), key=lambda item: _publish_time(item[1])))
            yield letters
        finally:
            await self._set_lease(connection, letters.values(), timedelta(0))

    async def _pull(self, connection: PubSubConnection, max_messages: int) -> Sequence[ReceivedMessage]:
        timeout = self._pull_timeout
        try:
            return await connection.pull(self._subscription, max_messages=max_messages, timeout=timeout) or []
        except exceptions.NotFound:
            return []  # nothing was ever dead-lettered

    async def _set_lease(
        self, connection: PubSubConnection, letters: Iterable[ReceivedMessage], lease: timedelta
    ) -> None:
        ack_ids = [letter.ack_id for letter in letters]
        await connection.set_lease(self._subscription, ack_ids, lease, timeout=_CALL_TIMEOUT)

    async def _publish_replay(self, connection: PubSubConnection, letter: ReceivedMessage) -> None:
        replay = received_messages.make_replay(letter.message, subscription=self._name, now=self._now())
        try:
            await connection.publish(self._topic, replay, timeout=_CALL_TIMEOUT)
        except exceptions.NotFound as error:
            raise Misconfigured(f"topic {self._topic!r} does not exist") from error

    async def _ack(self, connection: PubSubConnection, letter: ReceivedMessage) -> None:
        await connection.acknowledge(self._subscription, [letter.ack_id], timeout=_CALL_TIMEOUT)


def _with_id(letters: Iterable[ReceivedMessage], letter_id: str | None) -> list[ReceivedMessage]:
    return [
        letter
        for letter in letters
        if letter_id is None or received_messages.read_dead_letter(letter.message).id == letter_id
    ]


def _publish_time(letter: ReceivedMessage) -> Any:
    """Declared as protobuf's Timestamp, but a datetime, which has an order."""
    return letter.message.publish_time
