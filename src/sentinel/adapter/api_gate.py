"""Patience with the API: asking until it answers, and knowing meanwhile that it does not.

While the API is in trouble nothing is given up: what is held stays held, and nothing more is taken in. Each
request waits by itself, longer with each failure. Somebody always keeps asking, even when no request is left, so
that the end of the trouble is noticed, and so that one resource on which the API always fails, while it answers
for all others, does not look like trouble for everybody. Such a request is given up after a few tries, for the
broker to bring it back later. Nobody can ask whether a report would be taken without sending one; so where only
reports fail, one more resource is let in now and then, to find out, and none keeps its worker for longer than a
minute: as many resources as there are workers, of which the API takes no report, would otherwise be all that is
ever worked on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, TypeVar

from sentinel.ports.adapter_api import ReportRefused
from sentinel.ports.clock import Clock
from sentinel.ports.errors import ApiUnavailable
from sentinel.runtime.backoff import Backoff
from sentinel.runtime.lifecycle.stopping import Stopping

T = TypeVar("T")

RETRY = Backoff(initial=timedelta(milliseconds=500), maximum=timedelta(seconds=30), jitter=0.2)
RETRY_SLOWLY = Backoff(initial=timedelta(seconds=5), maximum=timedelta(seconds=60), jitter=0.2)
"""For what a person has to mend."""
_LONGEST_WISH = timedelta(minutes=5)
"""What a server may ask for at most; nobody waits for a day because of a typing error in a header."""
_TRIES = 5
"""After so many, a request that fails while others are answered is given up."""
_TRIES_IN_VAIN = 2
"""The same for a read that is said to need a person's help, which the others show that the API does not need."""
_LONGEST_SILENCE = timedelta(minutes=1)
"""How long a report is offered to an API that takes nobody's."""


class ApiOperation(StrEnum):
    """What the API is asked for. Being able to do one says little about the other."""

    READ = "read"
    REPORT = "report"


class RetriesExhausted(Exception):
    """There will be no answer to this request; the text says why."""


class ApiObserver(Protocol):
    """Whoever wants to know how it is with the API."""

    def api_failed(self, operation: ApiOperation, trouble: ApiUnavailable) -> None:
        """An operation has begun to fail, or fails in another way than before."""

    def api_recovered(self, operation: ApiOperation) -> None: ...


class ApiGate:
    """All requests of one adapter to the API."""

    def __init__(
        self,
        *,
        clock: Clock,
        watcher: ApiObserver,
        random: Callable[[], float],
        retry: Backoff = RETRY,
        retry_slowly: Backoff = RETRY_SLOWLY,
    ) -> None:
        self._clock = clock
        self._watcher = watcher
        self._random = random
        self._retry = retry
        self._retry_slowly = retry_slowly
        self._troubles: dict[ApiOperation, str] = {}
        self._answers: Counter[ApiOperation] = Counter()
        self._is_well = asyncio.Event()
        self._is_well.set()
        self._is_unread = asyncio.Event()
        """Set while it is unknown, or known to be untrue, that resources can be read."""
        self._is_unread.set()

    def trouble(self) -> str | None:
        """Why the API cannot be used at this moment, or None."""
        if not self._answers and not self._troubles:
            return "the API has not answered yet"
        return next(iter(self._troubles.values()), None)

    async def until_well(self) -> None:
        """Waits while the API is in trouble."""
        while self._troubles:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry.maximum.total_seconds()):
                    await self._is_well.wait()
            if ApiOperation.READ not in self._troubles:
                return

    async def keep_asking(self, question: Callable[[], Awaitable[None]], stopping: Stopping) -> None:
        """Asks, at first and whenever reading has failed, until there is an answer; for ever."""
        while not stopping.requested:
            if await stopping.interrupts(self._is_unread.wait()):
                return
            with suppress(RetriesExhausted):
                await self.ask(ApiOperation.READ, question, stopping)

    async def ask(self, operation: ApiOperation, request: Callable[[], Awaitable[T]], stopping: Stopping) -> T:
        """The answer, after however many tries.

        Raises `ReportRefused`, which is an answer. Raises `RetriesExhausted` when the service stops, when the
        request itself seems to be at fault, and when no reports are accepted at all.
        """
        answers_before = self._answers[operation]
        begun = self._clock.now()
        tries = 0
        while True:
            try:
                answer = await request()
            except ApiUnavailable as trouble:
                delay = self._failed(operation, trouble, tries)
                tries += 1
                if self._answers[operation] > answers_before and tries >= _enough(operation, trouble):
                    self._recovered(operation)  # it was about this request alone
                    raise RetriesExhausted(str(trouble)) from trouble
                if operation is ApiOperation.REPORT and self._clock.now() - begun >= _LONGEST_SILENCE:
                    raise RetriesExhausted(str(trouble)) from trouble
            except ReportRefused:
                self._answered(operation)
                raise
            else:
                self._answered(operation)
                return answer
            if await stopping.interrupts(self._clock.sleep(delay)):
                raise RetriesExhausted("the service ends")

    def _failed(self, operation: ApiOperation, trouble: ApiUnavailable, tries: int) -> timedelta:
        text = str(trouble)
        if self._troubles.get(operation) != text:
            self._troubles[operation] = text
            self._watcher.api_failed(operation, trouble)
        self._is_well.clear()
        if operation is ApiOperation.READ:
            self._is_unread.set()
        backoff = self._retry_slowly if trouble.needs_operator else self._retry
        return max(backoff.delay(tries, self._random()), min(trouble.retry_after, _LONGEST_WISH))

    def _answered(self, operation: ApiOperation) -> None:
        self._answers[operation] += 1
        self._recovered(operation)

    def _recovered(self, operation: ApiOperation) -> None:
        if operation is ApiOperation.READ:
            self._is_unread.clear()
        if self._troubles.pop(operation, None) is not None:
            self._watcher.api_recovered(operation)
        if not self._troubles:
            self._is_well.set()


def _enough(operation: ApiOperation, trouble: ApiUnavailable) -> int:
    """After how many tries a request is given up while others of its kind are answered."""
    return _TRIES_IN_VAIN if operation is ApiOperation.READ and trouble.needs_operator else _TRIES
