"""Publishing to Google Cloud Pub/Sub, confirmed.

Events go out in requests of many messages, several requests at a time; Pub/Sub confirms a request by giving each
of its messages an id. gRPC keeps the connection. What this module adds is the watch over it: in the background
the topic is looked at until it is found, again whenever publishing gives reason to doubt, and now and then, so
that readiness knows of trouble before the next event does.

Pub/Sub cannot say that an event has nowhere to go: a topic without subscriptions takes it and drops it. No
outcome here is ever unroutable.
"""

from __future__ import annotations

import asyncio
import random as system_random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec
from google.api_core import exceptions
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.types import PublishRequest, PublishResponse

from sentinel import ports
from sentinel.core.events import Event, Mode
from sentinel.drivers import pubsub_client
from sentinel.drivers.pubsub_client import CALL_FAILED, SERVICE, describe
from sentinel.drivers.pubsub_messages import Batch, Limits, MessageLayout, Request
from sentinel.runtime.backoff import Backoff

WINDOW = 4
LIMITS = Limits()
RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)
"""Short waits: a broker that is back is found within one poll."""

_ATTEMPTS = 5
"""How often a request is sent before it counts as unconfirmed, about a second and a half if nothing is there.
Whoever publishes has more patience than that, and should not be kept waiting by ours."""
_ATTEMPT = timedelta(seconds=5)
_FIRST_LOOK = timedelta(seconds=3)
"""How long opening waits for an answer before it leaves the rest to the background."""
_NEXT_LOOK = timedelta(seconds=30)
_NOT_OPEN = "the publisher is not open"

_PASSING = (
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.ResourceExhausted,
    exceptions.ServiceUnavailable,
    exceptions.Unknown,
)
"""What Google's own clients retry when they publish; anything else is a refusal."""


class Connectivity(msgspec.Struct, frozen=True):
    """A change in the way to the topic, for whoever renders it."""

    is_connected: bool
    broker: str
    """Host and port, of the service or of an emulator."""
    reason: str = ""
    """Why events could not be sent; free of secrets."""


class PubSubPublisher:
    """`ports.Publisher` on a Pub/Sub topic.

    Credentials are found in the ordinary Google ways, and found anew when they are no longer accepted. An
    emulator needs none.

    A request that fails in passing is sent again, a few times and with backoff, as long as the deadline allows;
    one that Pub/Sub finds fault with is divided until the events at fault are by themselves.
    """

    broker_type = "gcp-pubsub"

    def __init__(
        self,
        *,
        project_id: str,
        topic: str,
        create_topic: bool = False,
        mode: Mode = Mode.STRUCTURED,
        emulator_host: str = "",
        endpoint: str = SERVICE,
        ordering_key: str = "",
        limits: Limits = LIMITS,
        window: int = WINDOW,
        retry: Backoff = RETRY,
        random: Callable[[], float] = system_random.random,
        observe: Callable[[Connectivity], None] = lambda change: None,
    ) -> None:
        """With `create_topic` a topic that is not there is created, now or whenever it is found missing.

        `emulator_host` is host and port of an emulator to use instead of Google's service; `endpoint` is that of
        the service, for those who need a regional one. With an `ordering_key`, which all events then share, one
        request follows the other; otherwise up to `window` are under way. `observe` hears of changes, not of
        every attempt.
        """
        if window < 1:
            raise ValueError(f"window: expected 1 or more, got {window}")
        self._topic = f"projects/{project_id}/topics/{topic}"
        self._endpoint = endpoint
        self._emulator_host = emulator_host
        self._broker = emulator_host or endpoint
        self._may_create = create_topic
        self._window = 1 if ordering_key else window
        self._retry = retry
        self._random = random
        self._observe = observe
        self._layout = MessageLayout(
            topic=self._topic, mode=mode, ordering_key=ordering_key, limits=limits, now=self._now
        )
        self._keeper: asyncio.Task[None] | None = None
        self._client: PublisherAsyncClient | None = None
        self._looked = asyncio.Event()
        """Rung at the end of every look at the topic, and at the end of all of them."""
        self._doubt = asyncio.Event()
        """Set by whatever makes another look worthwhile."""
        self._confirmations = 0
        self._misconfigured: ports.BrokerMisconfigured | None = None
        self._connectivity: Connectivity | None = None

    async def open(self) -> None:
        if self._keeper is not None:
            return
        self._misconfigured = self._connectivity = None
        self._keeper = asyncio.create_task(self._keep_looking(), name="pubsub")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_LOOK.total_seconds()):
                    await self._looked.wait()
            if self._misconfigured is not None:
                raise self._misconfigured
        except BaseException:
            await self.close()
            raise

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> ports.Receipt:
        batch = Batch(events)
        reason = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                # A deadline that has already passed shows here, before anything is sent.
                await asyncio.sleep(0)
                if self._keeper is not None and self._client is None:
                    await self._looked.wait()
                if self._client is not None:
                    await self._send(batch)
                reason = self.trouble() or "the connection was closed"
        except TimeoutError:
            reason = self.trouble() or f"no answer within {deadline.total_seconds():g}s"
        return ports.Receipt(batch.outcomes.copy(), batch.seconds.copy(), batch.explain(reason))

    def trouble(self) -> str | None:
        if self._keeper is None:
            return _NOT_OPEN
        if self._connectivity is None:
            return f"{self._broker}: still connecting"
        return None if self._connectivity.is_connected else f"{self._broker}: {self._connectivity.reason}"

    async def close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            self._ring()
            await asyncio.wait((keeper,))

    # --- publishing -------------------------------------------------------------------------------------------

    async def _send(self, batch: Batch) -> None:
        """Sends the batch as the window allows, and returns when every request has come to its end."""
        window = asyncio.Semaphore(self._window)
        is_passable = True

        async def deliver(request: Request) -> None:
            nonlocal is_passable
            try:
                is_passable = await self._deliver(request) and is_passable
            finally:
                window.release()

        async with asyncio.TaskGroup() as group:
            for request in self._layout.requests(batch):
                await window.acquire()
                if not is_passable:
                    # Trouble must not multiply: what comes after would only wait for the same answer.
                    break
                group.create_task(deliver(request))
                # Laying out a request takes milliseconds; in between, others have their turn.
                await asyncio.sleep(0)

    async def _deliver(self, request: Request) -> bool:
        """Sends one request until it is answered; false where it could not be."""
        begun = self._now()
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._retry.delay(attempt - 1, self._random()).total_seconds())
            if self._client is None:
                return False
            try:
                answer = await self._client.publish(
                    PublishRequest.wrap(request.content), retry=None, timeout=_ATTEMPT.total_seconds()
                )
            except exceptions.InvalidArgument as error:
                halves = request.halves()
                if halves:
                    return all([await self._deliver(half) for half in halves])
                request.went_wrong(describe(error))
                request.answered(ports.Outcome.REFUSED, self._now() - begun)
                return True
            except CALL_FAILED as error:
                request.went_wrong(describe(error))
                self._doubt.set()
                if not self._is_passing(error):
                    request.answered(ports.Outcome.REFUSED, self._now() - begun)
                    return True
            else:
                return self._confirm(request, answer, self._now() - begun)
        return False

    def _is_passing(self, error: Exception) -> bool:
        # A topic that we may create is missing for a moment only.
        is_being_created = self._may_create and isinstance(error, exceptions.NotFound)
        return (
            is_being_created or not isinstance(error, exceptions.GoogleAPICallError) or isinstance(error, _PASSING)
        )

    def _confirm(self, request: Request, answer: PublishResponse, seconds: float) -> bool:
        ids = len(PublishResponse.pb(answer).message_ids)
        if ids != len(request):
            request.went_wrong(f"{len(request)} messages were sent, and {ids} confirmed")
            return False
        request.answered(ports.Outcome.CONFIRMED, seconds)
        self._confirmations += 1
        self._report(Connectivity(is_connected=True, broker=self._broker))
        return True

    # --- the watch over the topic -----------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        failures = 0
        try:
            while True:
                self._doubt.clear()
                confirmations = self._confirmations
                try:
                    is_seen = await self._look()
                except Exception as error:
                    self._misconfigured = error if isinstance(error, ports.BrokerMisconfigured) else None
                    # What was confirmed meanwhile knows better.
                    if self._confirmations == confirmations:
                        self._report(Connectivity(is_connected=False, broker=self._broker, reason=describe(error)))
                    self._ring()
                    await asyncio.sleep(self._retry.delay(failures, self._random()).total_seconds())
                    failures += 1
                else:
                    self._misconfigured = None
                    self._report(Connectivity(is_connected=True, broker=self._broker))
                    self._ring()
                    failures = 0
                    await self._until_doubtful(is_seen=is_seen)
        finally:
            await self._release_client()

    async def _look(self) -> bool:
        if self._client is None:
            self._client = await pubsub_client.connect(endpoint=self._endpoint, emulator_host=self._emulator_host)
        try:
            return await pubsub_client.require_topic(self._client, self._topic, may_create=self._may_create)
        except pubsub_client.NotAccepted:
            # A key that was replaced is read when it is looked for again.
            await self._release_client()
            raise

    async def _until_doubtful(self, *, is_seen: bool) -> None:
        # Who may not look at the topic is not asked to look at it for ever: each time leaves an entry in an audit
        # log. Publishing will show.
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEXT_LOOK.total_seconds() if is_seen else None):
                await self._doubt.wait()

    async def _release_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await pubsub_client.release(client)

    def _ring(self) -> None:
        self._looked.set()
        self._looked.clear()

    def _report(self, connectivity: Connectivity) -> None:
        if connectivity != self._connectivity:
            self._connectivity = connectivity
            self._observe(connectivity)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
