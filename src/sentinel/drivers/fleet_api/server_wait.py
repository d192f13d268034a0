"""How long a server wants no requests, for all clients of it in one pulse.

A server that asks to wait (429 or 503 with Retry-After) in a response to a page gets no request before that time,
neither for a page nor for a stream. In its response to a stream, it delays the stream alone.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from http import HTTPStatus

from sentinel.drivers.fleet_api.connection import RequestFailure
from sentinel.drivers.rest.errors import RequestRejected

MAX_RETRY_AFTER = timedelta(minutes=5)
"""A longer Retry-After is cut to this: a mistyped one must not stop the polling for a day."""

_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class ServerWait:
    """The time before which the server wants no request."""

    def __init__(self) -> None:
        self._resume_at = 0.0
        """In the loop's time."""
        self.reason = ""
        """What the server said."""

    def note(self, failure: RequestFailure, retry_after: timedelta, reason: str) -> None:
        """Take note of a failed request. Only a response that asks to wait counts."""
        if retry_after and isinstance(failure, RequestRejected) and failure.status in _STATUSES:
            self._resume_at = asyncio.get_running_loop().time() + retry_after.total_seconds()
            self.reason = reason

    def remaining(self) -> timedelta:
        """How long to wait from now."""
        return timedelta(seconds=max(0.0, self._resume_at - asyncio.get_running_loop().time()))
