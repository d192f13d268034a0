"""The way to Pub/Sub: Google's generated clients on an asynchronous channel, and what has to exist behind them.

The generated clients are used as they are, except that their channel is made here: gRPC would wait up to two
minutes before it looks again for a server that was away, and through any HTTP proxy for an emulator on this
machine. The connection itself is gRPC's; it is made again whenever something is to be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import cached_property

import google.auth
import grpc.aio  # type: ignore[import-untyped]  # it ships no types
from google.api_core import exceptions
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import ExpirationPolicy, Subscription

from sentinel.ports.errors import Misconfigured

DEFAULT_ENDPOINT = "pubsub.googleapis.com:443"

CALL_FAILED = (exceptions.GoogleAPICallError, grpc.aio.BaseError)
"""What a call raises: a status, or gRPC's own word on a channel that is closed."""


class CredentialsRejected(Misconfigured):
    """The credentials are there, and Google does not take them."""


_LOOKUP = timedelta(seconds=20)
"""How long credentials may be looked for; off Google Cloud, its metadata server is given up after about ten."""
_CALL = timedelta(seconds=10)
_CLOSING = timedelta(seconds=2)
_LONGEST_REASON = 300

_CHANNEL: Sequence[tuple[str, int]] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_500),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # in spite of its name: what one attempt to connect may take
    ("grpc.keepalive_time_ms", 30_000),  # as in Google's own client; servers dislike more
    ("grpc.keepalive_timeout_ms", 10_000),  # for data that nobody acknowledges, too
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 4 * 1024 * 1024),  # where Google puts the details of an error
)
_EMULATOR_CHANNEL = (*_CHANNEL, ("grpc.enable_http_proxy", 0))


class PubSubConnection:
    """Google's clients, on a channel of ours."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        # With a channel given, the clients do not look for an emulator in the environment.
        self.publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))

    @cached_property
    def subscriber(self) -> SubscriberAsyncClient:
        """The client for those who receive; made when one is needed, because it costs something."""
        return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=self._channel))

    async def until_lost(self) -> None:
        """Returns when there is no connection; gRPC makes another only when there is something to send."""
        await self._channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

    async def close(self) -> None:
        """Ends the connection, and with it every call that is under way."""
        # Whatever is wrong with it, we are done with it.
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING.total_seconds()):
                await self._channel.close()


async def connect(*, endpoint: str, emulator_host: str) -> PubSubConnection:
    """The way to the emulator, or else to Google's service with what credentials the environment has.

    Nothing is sent yet. Raises `Misconfigured` where there are no credentials.
    """
    if emulator_host:
        return PubSubConnection(grpc.aio.insecure_channel(emulator_host, options=_EMULATOR_CHANNEL))
    credentials = await _find_credentials()
    return PubSubConnection(
        PublisherGrpcAsyncIOTransport.create_channel(endpoint, credentials=credentials, options=_CHANNEL)
    )


class LazyConnection:
    """One connection at a time, made when it is needed and kept until something is wrong with it."""

    def __init__(self, *, endpoint: str, emulator_host: str) -> None:
        self._endpoint = endpoint
        self._emulator_host = emulator_host
        self.broker = emulator_host or endpoint
        """Where it leads."""
        self.connection: PubSubConnection | None = None
        """The one in use, if there is one."""

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[PubSubConnection]:
        """The one in use, or else another, for a look at what has to exist; raises as `connect` does.

        One whose credentials turn out not to be accepted is in use no longer.
        """
        if self.connection is None:
            self.connection = await connect(endpoint=self._endpoint, emulator_host=self._emulator_host)
        try:
            yield self.connection
        except CredentialsRejected:
            # A key that was replaced is read when it is looked for again.
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the one in use; harmless when repeated."""
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()


async def require_topic(client: PublisherAsyncClient, topic: str, *, may_create: bool) -> bool:
    """Finds the topic, or creates it; false where we may not look, so that only publishing will tell.

    The publisher's role does not include looking. Raises `Misconfigured` where every event would be
    refused, and what `CALL_FAILED` names where Pub/Sub could not be asked.
    """
    with _explained(f"topic {topic!r}"):
        return await _find_or_create(client, topic, may_create=may_create)


async def require_subscription(
    client: SubscriberAsyncClient, name: str, *, topic: str, may_create: bool, lease: timedelta
) -> None:
    """Finds the subscription, or creates it for a topic that exists; where we may not look, receiving will tell.

    Raises as `require_topic` does, and where it is another topic's. One that is made never expires, and lets a
    message be held for the `lease` before it is delivered again.
    """
    wanted = Subscription(
        name=name,
        topic=topic,
        ack_deadline_seconds=round(lease.total_seconds()),
        expiration_policy=ExpirationPolicy(),
    )
    with _explained(f"subscription {name!r}"):
        try:
            found = await client.get_subscription(subscription=name, retry=None, timeout=_CALL.total_seconds())
        except exceptions.PermissionDenied:
            return
        except exceptions.NotFound:
            if not may_create:
                raise
        else:
            if found.topic != topic:
                expected = f"expected one of topic {topic!r}, got one of {found.topic!r}"
                raise Misconfigured(f"subscription {name!r}: {expected}")
            return
        with suppress(exceptions.AlreadyExists):
            await client.create_subscription(wanted, retry=None, timeout=_CALL.total_seconds())


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Around a look at something that is needed: says what a person has to mend."""
    try:
        yield
    except exceptions.Unauthenticated as error:
        raise CredentialsRejected(f"the credentials are not accepted: {describe(error)}") from error
    except exceptions.NotFound as error:
        hint = "create it, or let it be created"
        raise Misconfigured(f"{what}: {describe(error)}; {hint}") from error
    except (exceptions.InvalidArgument, exceptions.PermissionDenied) as error:
        raise Misconfigured(f"{what}: {describe(error)}") from error


async def _find_or_create(client: PublisherAsyncClient, topic: str, *, may_create: bool) -> bool:
    is_missing = False
    try:
        await client.get_topic(topic=topic, retry=None, timeout=_CALL.total_seconds())
    except exceptions.NotFound:
        is_missing = True
        if not may_create:
            raise
    except exceptions.PermissionDenied:
        if not may_create:
            return False
    else:
        return True
    try:
        await client.create_topic(name=topic, retry=None, timeout=_CALL.total_seconds())
    except exceptions.AlreadyExists:
        pass
    except exceptions.PermissionDenied:
        if is_missing:
            raise
        return False
    return True


def describe(error: Exception) -> str:
    """What went wrong, in a line; Google's texts name places and permissions, and no secrets."""
    match error:
        case Misconfigured():
            return str(error)
        case exceptions.GoogleAPICallError():
            status = getattr(error.grpc_status_code, "name", "")
            text = f"{status}: {error.message}" if status else str(error.message)
        case TimeoutError():
            text = "timed out"
        case _:
            text = str(error) or type(error).__name__
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"


async def _find_credentials() -> Credentials:
    # In a thread, because it reads files and may wait for the metadata server. Refreshing them is done by gRPC,
    # in threads of its own.
    try:
        async with asyncio.timeout(_LOOKUP.total_seconds()):
            found, _ = await asyncio.to_thread(
                google.auth.default, default_scopes=PublisherGrpcAsyncIOTransport.AUTH_SCOPES
            )
    except GoogleAuthError as error:
        # Only the library's sentence: what it adds may quote the file.
        sentence = next((text for text in error.args if isinstance(text, str)), type(error).__name__)
        raise Misconfigured(f"no credentials for Google Cloud: {sentence}") from None
    return found
