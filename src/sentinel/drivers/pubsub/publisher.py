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

from google.api_core import exceptions
from google.pubsub_v1.types import PublishRequest, PublishResponse

from sentinel.core.events import Event, Mode
from sentinel.drivers.pubsub import client
from sentinel.drivers.pubsub.client import CALL_FAILED, DEFAULT_ENDPOINT, LazyConnection, describe
from sentinel.drivers.pubsub.publish_requests import EncodedRequest, PublishBatch, RequestEncoder, RequestLimits
from sentinel.drivers.reconnect import ConnectionSupervisor
from sentinel.ports.publisher import Connectivity, Outcome, Receipt
from sentinel.runtime.backoff import Backoff

WINDOW = 4
LIMITS = RequestLimits()
RETRY = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=1.5), jitter=0.3)
"""Short waits: a broker that is back is found within one poll."""

_ATTEMPTS = 5
"""How often a request is sent before it counts as unconfirmed, about a second and a half if nothing is there.
Whoever publishes has more patience than that, and should not be kept waiting by ours."""
_ATTEMPT = timedelta(seconds=5)
_FIRST_LOOK = timedelta(seconds=3)
"""How long opening waits for an answer before it leaves the rest to the background."""
_NEXT_LOOK = timedelta(seconds=30)

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
        endpoint: str = DEFAULT_ENDPOINT,
        ordering_key: str = "",
        limits: RequestLimits = LIMITS,
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
        self._may_create = create_topic
        self._window = 1 if ordering_key else window
        self._retry = retry
        self._random = random
        self._layout = RequestEncoder(
            topic=self._topic, mode=mode, ordering_key=ordering_key, limits=limits, now=self._now
        )
        self._line = LazyConnection(endpoint=endpoint, emulator_host=emulator_host)
        self._keeper = ConnectionSupervisor(
            name="pubsub", broker=self._line.broker, patience=_FIRST_LOOK, observe=observe
        )
        self._doubt = asyncio.Event()
        """Set by whatever makes another look worthwhile."""
        self._confirmations = 0

    async def open(self) -> None:
        await self._keeper.open(self._keep_looking)

    async def publish(self, events: Sequence[Event], *, deadline: timedelta) -> Receipt:
        batch = PublishBatch(events)
        reason = ""
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                # A deadline that has already passed shows here, before anything is sent.
                await asyncio.sleep(0)
                if self._keeper.is_open and self._line.connection is None:
                    await self._keeper.attempt()
                if self._line.connection is not None:
                    await self._send(batch)
                reason = self.trouble() or "the connection was closed"
        except TimeoutError:
            self._doubt.set()
            reason = self.trouble() or f"no answer within {deadline.total_seconds():g}s"
        return Receipt(batch.outcomes.copy(), batch.seconds.copy(), batch.explain(reason))

    def trouble(self) -> str | None:
        return self._keeper.trouble()

    async def close(self) -> None:
        await self._keeper.close()

    # --- publishing -------------------------------------------------------------------------------------------

    async def _send(self, batch: PublishBatch) -> None:
        """Sends the batch as the window allows, and returns when every request has come to its end."""
        window = asyncio.Semaphore(self._window)
        is_passable = True

        async def deliver(request: EncodedRequest) -> None:
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

    async def _deliver(self, request: EncodedRequest) -> bool:
        """Sends one request until it is answered; false where it could not be."""
        begun = self._now()
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._retry.delay(attempt - 1, self._random()).total_seconds())
            if self._line.connection is None:
                return False
            try:
                answer = await self._line.connection.publisher.publish(
                    PublishRequest.wrap(request.content), retry=None, timeout=_ATTEMPT.total_seconds()
                )
            except exceptions.InvalidArgument as error:
                halves = request.halves()
                if halves:
                    return await self._deliver(halves[0]) and await self._deliver(halves[1])
                request.went_wrong(describe(error))
                request.answered(Outcome.REFUSED, self._now() - begun)
                return True
            except CALL_FAILED as error:
                request.went_wrong(describe(error))
                self._doubt.set()
                if not self._is_passing(error):
                    request.answered(Outcome.REFUSED, self._now() - begun)
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

    def _confirm(self, request: EncodedRequest, answer: PublishResponse, seconds: float) -> bool:
        ids = len(PublishResponse.pb(answer).message_ids)
        if ids != len(request):
            request.went_wrong(f"{len(request)} messages were sent, and {ids} confirmed")
            return False
        request.answered(Outcome.CONFIRMED, seconds)
        self._confirmations += 1
        self._keeper.connected()
        return True

    # --- the watch over the topic -----------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        failures = 0
        try:
            while True:
                self._doubt.clear()
                confirmations = self._confirmations
                try:
                    async with self._line.looking() as connection:
                        is_seen = await client.require_topic(
                            connection.publisher, self._topic, may_create=self._may_create
                        )
                    self._keeper.connected()
                    self._keeper.ring()
                    failures = 0
                    await self._until_doubtful(connection, is_seen=is_seen)
                except Exception as error:
                    self._keeper.failed(error)
                    # What was confirmed meanwhile knows better.
                    if self._confirmations == confirmations:
                        self._keeper.disconnected(describe(error))
                    self._keeper.ring()
                    failures += 1
                # After a success, too: a connection that is lost as soon as it is made is not to be made at once.
                await asyncio.sleep(self._retry.delay(failures, self._random()).total_seconds())
        finally:
            await self._line.close()

    async def _until_doubtful(self, connection: client.PubSubConnection, *, is_seen: bool) -> None:
        # Who may not look at the topic does not keep looking: each time may leave an entry in an audit log.
        patience = _NEXT_LOOK.total_seconds() if is_seen else None
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._doubt_when_lost(connection))
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._doubt.wait()
            watching.cancel()

    async def _doubt_when_lost(self, connection: client.PubSubConnection) -> None:
        await connection.until_lost()
        self._doubt.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
