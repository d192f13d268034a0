"""What a task is given beside the resource: the means to do its work, and what led to it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sentinel.core.adapter.event_target import ReceivedEvent
from sentinel.core.adapter.resource import KnownReport
from sentinel.ports.task_http import HttpClient
from sentinel.runtime.log import Log


class Cancellation:
    """Whether an evaluation has been called off. It may be asked from any thread."""

    def __init__(self) -> None:
        self._is_requested = False

    @property
    def is_requested(self) -> bool:
        return self._is_requested

    def request(self) -> None:
        """Calls the evaluation off."""
        self._is_requested = True


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of one evaluation."""

    adapter: str
    """The adapter's own name."""
    http: HttpClient
    """For requests, with timeouts and retries."""
    event: ReceivedEvent
    """What caused this evaluation; of several events that one evaluation answers, the newest."""
    log: Log
    """A log whose lines carry the resource: `context.log.info("zone.created", zone=name)`."""
    previous: KnownReport | None
    """This adapter's latest report on the resource, whichever generation it is about."""
    deadline: datetime
    """When the evaluation will be cancelled."""
    cancellation: Cancellation

    @property
    def cancelled(self) -> bool:
        """Whether the evaluation has been called off. An asynchronous task is cancelled anyway; this is for work
        that it has handed to a thread."""
        return self.cancellation.is_requested
