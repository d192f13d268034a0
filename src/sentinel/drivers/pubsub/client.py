"""The connection to Pub/Sub, and the topics and subscriptions that must exist there.

Google's generated clients are used as they are, but on a channel created here. With gRPC's defaults a channel
would wait up to two minutes before it tries an unreachable server again, and would reach a local emulator
through an HTTP proxy. gRPC manages the connection itself and reconnects when there is something to send.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import TypedDict, Unpack

import google.auth
import grpc.aio
from google.api_core import exceptions
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.oauth2 import service_account
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import (
    ExpirationPolicy,
    PublishRequest,
    PubsubMessage,
    PullRequest,
    ReceivedMessage,
    Subscription,
)

from sentinel.ports.errors import Misconfigured

DEFAULT_ENDPOINT = "pubsub.googleapis.com:443"

CALL_ERRORS = (exceptions.GoogleAPICallError, grpc.aio.BaseError)
"""Errors of a call: a status, or gRPC's error for a closed channel."""


class CredentialsRejected(Misconfigured):
    """Google rejects the credentials."""


_CREDENTIALS_TIMEOUT = timedelta(seconds=20)
"""Outside Google Cloud, the lookup of its metadata server ends after about ten seconds."""
_CALL_TIMEOUT = timedelta(seconds=10)
_CLOSE_TIMEOUT = timedelta(seconds=2)
_MAX_ERROR_LENGTH = 300
_MAX_PER_REQUEST = 1_000
"""Messages or ack ids in one request."""

_CHANNEL_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_500),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # despite its name, the timeout of one connection attempt
    ("grpc.keepalive_time_ms", 30_000),  # as in Google's own client; servers reject more frequent pings
    ("grpc.keepalive_timeout_ms", 10_000),  # also applies to data that is not acknowledged
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 4 * 1024 * 1024),  # Google puts the details of an error there
)
_EMULATOR_CHANNEL_OPTIONS = (*_CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0))


class PubSubConnection:
    """Google's clients on our channel. Calls raise the errors in `CALL_ERRORS`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        # With a channel given, the clients do not look for an emulator in the environment.
        self.publisher = PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))

    @cached_property
    def subscriber(self) -> SubscriberAsyncClient:
        """Created on first use, because it is expensive and publishers do not need it."""
        return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=self._channel))

    async def publish(self, topic: str, message: PubsubMessage, *, timeout: timedelta) -> None:
        request = PublishRequest(topic=topic, messages=[message])
        await self.publisher.publish(request, retry=None, timeout=timeout.total_seconds())

    async def pull(
        self, subscription: str, *, max_messages: int, timeout: timedelta
    ) -> Sequence[ReceivedMessage] | None:
        """Pull messages. Return None if no response came, as Pub/Sub may do when there are no messages."""
        request = PullRequest(subscription=subscription, max_messages=min(max_messages, _MAX_PER_REQUEST))
        try:
            response = await self.subscriber.pull(request, retry=None, timeout=timeout.total_seconds())
        except exceptions.DeadlineExceeded:
            return None
        return list(response.received_messages)

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str], *, timeout: timedelta) -> None:
        for chunk in _chunks(ack_ids):
            await self.subscriber.acknowledge(
                subscription=subscription, ack_ids=chunk, retry=None, timeout=timeout.total_seconds()
            )

    async def set_lease(
        self, subscription: str, ack_ids: Sequence[str], lease: timedelta, *, timeout: timedelta
    ) -> None:
        """Hold the messages for the lease from now on; a lease of zero requeues them."""
        for chunk in _chunks(ack_ids):
            await self.subscriber.modify_ack_deadline(
                subscription=subscription,
                ack_ids=chunk,
                ack_deadline_seconds=round(lease.total_seconds()),
                retry=None,
                timeout=timeout.total_seconds(),
            )

    async def wait_until_lost(self) -> None:
        """Wait until the connection is lost; gRPC opens another only when there is something to send."""
        await self._channel.wait_for_state_change(grpc.ChannelConnectivity.READY)

    async def close(self) -> None:
        """Close the connection and abort every call in progress."""
        # Errors no longer matter: the connection is not used again.
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_TIMEOUT.total_seconds()):
                await self._channel.close()


def _chunks(ack_ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ack_ids), _MAX_PER_REQUEST):
        yield list(ack_ids[start : start + _MAX_PER_REQUEST])


class ConnectOptions(TypedDict, total=False):
    """Where Pub/Sub is, and who we are there."""

    emulator_host: str
    """Host and port of an emulator to use instead of Google's service."""
    credentials_json: str
    """The key of a service account. Without it, the environment's credentials are used."""
    endpoint: str
    """A regional endpoint of the service."""


def server_address(options: ConnectOptions) -> str:
    """Return where these options connect to."""
    return options.get("emulator_host") or options.get("endpoint", DEFAULT_ENDPOINT)


async def connect(**options: Unpack[ConnectOptions]) -> PubSubConnection:
    """Create a connection. Nothing is sent yet. Raises `Misconfigured` if there are no credentials."""
    address = server_address(options)
    if options.get("emulator_host"):
        return PubSubConnection(grpc.aio.insecure_channel(address, options=_EMULATOR_CHANNEL_OPTIONS))
    key = options.get("credentials_json")
    credentials = _service_account(key) if key else await _find_credentials()
    return PubSubConnection(
        PublisherGrpcAsyncIOTransport.create_channel(address, credentials=credentials, options=_CHANNEL_OPTIONS)
    )


class LazyConnection:
    """One connection, created on first use and again after its credentials were rejected."""

    def __init__(self, **options: Unpack[ConnectOptions]) -> None:
        self._options = options
        self.broker = server_address(options)
        self.current: PubSubConnection | None = None

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PubSubConnection]:
        """Yield the current connection, or a new one; raises as `connect` does."""
        if self.current is None:
            self.current = await connect(**self._options)
        try:
            yield self.current
        except CredentialsRejected:
            # The next connection looks up the credentials again, and so finds a replaced key.
            await self.close()
            raise

    async def close(self) -> None:
        """Close the current connection. Safe to repeat."""
        connection, self.current = self.current, None
        if connection is not None:
            await connection.close()


async def require_topic(client: PublisherAsyncClient, topic: str, *, may_create: bool) -> bool:
    """Find or create the topic. Return False if we have no permission to look it up, which the publisher role does
    not include. Then only publishing shows whether it exists. Raises `Misconfigured` if every event would be
    refused, and the errors in `CALL_ERRORS` if the call failed.
    """
    with _setup_errors(f"topic {topic!r}"):
        return await _find_or_create_topic(client, topic, may_create=may_create)


async def require_subscription(
    client: SubscriberAsyncClient, name: str, *, topic: str, may_create: bool, lease: timedelta
) -> None:
    """Find the subscription, or create it for an existing topic. If we may not look it up, receiving shows errors.

    Raises as `require_topic` does, and if it belongs to another topic. A created subscription never expires,
    and its ack deadline is the `lease`.
    """
    wanted = Subscription(
        name=name,
        topic=topic,
        ack_deadline_seconds=round(lease.total_seconds()),
        expiration_policy=ExpirationPolicy(),
    )
    timeout = _CALL_TIMEOUT.total_seconds()
    with _setup_errors(f"subscription {name!r}"):
        try:
            found = await client.get_subscription(subscription=name, retry=None, timeout=timeout)
        except exceptions.PermissionDenied:
            return
        except exceptions.NotFound:
            if not may_create:
                raise
        else:
            if found.topic != topic:
                expected = f"expected it to have topic {topic!r}, got {found.topic!r}"
                raise Misconfigured(f"subscription {name!r}: {expected}")
            return
        with suppress(exceptions.AlreadyExists):
            await client.create_subscription(wanted, retry=None, timeout=timeout)


@contextmanager
def _setup_errors(what: str) -> Iterator[None]:
    """Raise `Misconfigured` for errors that an operator has to fix."""
    try:
        yield
    except exceptions.Unauthenticated as error:
        raise CredentialsRejected(f"the credentials are not accepted: {describe_error(error)}") from error
    except exceptions.NotFound as error:
        advice = "create it, or set BROKER_CREATE_TOPIC=true"
        raise Misconfigured(f"{what}: {describe_error(error)}; {advice}") from error
    except (exceptions.InvalidArgument, exceptions.PermissionDenied) as error:
        raise Misconfigured(f"{what}: {describe_error(error)}") from error


async def _find_or_create_topic(client: PublisherAsyncClient, topic: str, *, may_create: bool) -> bool:
    timeout = _CALL_TIMEOUT.total_seconds()
    is_missing = False
    try:
        await client.get_topic(topic=topic, retry=None, timeout=timeout)
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
        await client.create_topic(name=topic, retry=None, timeout=timeout)
    except exceptions.AlreadyExists:
        pass
    except exceptions.PermissionDenied:
        if is_missing:
            raise
        return False
    return True


def describe_error(error: Exception) -> str:
    """Return the error in one line. Google's messages name resources and permissions, but no secrets."""
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
    return line if len(line) <= _MAX_ERROR_LENGTH else f"{line[:_MAX_ERROR_LENGTH]}…"


def _service_account(key: str) -> Credentials:
    try:
        credentials: Credentials = service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]  # it has no types
            json.loads(key), default_scopes=PublisherGrpcAsyncIOTransport.AUTH_SCOPES
        )
    except (GoogleAuthError, ValueError, TypeError, AttributeError):
        # Without the library's message, which may quote the key.
        expected = "expected the key of a service account, as JSON, got something else"
        raise Misconfigured(f"no credentials for Google Cloud: {expected}") from None
    return credentials


async def _find_credentials() -> Credentials:
    # In a thread, because it reads files and may wait for the metadata server. gRPC refreshes them in its own
    # threads.
    try:
        async with asyncio.timeout(_CREDENTIALS_TIMEOUT.total_seconds()):
            found, _ = await asyncio.to_thread(
                google.auth.default, default_scopes=PublisherGrpcAsyncIOTransport.AUTH_SCOPES
            )
    except GoogleAuthError as error:
        # Only the library's message: its further arguments may quote the file.
        message = next((text for text in error.args if isinstance(text, str)), type(error).__name__)
        raise Misconfigured(f"no credentials for Google Cloud: {message}") from None
    return found
