"""Faults that a test injects into responses. All are deterministic: nothing happens by chance."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from http import HTTPStatus

import msgspec

from sentinel.testing.kube.errors import ApiError
from sentinel.testing.kube.requests import Target

_REASONS = {
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.CONFLICT: "Conflict",
    HTTPStatus.GONE: "Expired",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "Timeout",
}


class Failure(msgspec.Struct, frozen=True):
    """A response for the next requests that match."""

    status: HTTPStatus
    verb: str = ""
    """Empty for all verbs."""
    plural: str = ""
    """Empty for all resources."""
    retry_after: timedelta = timedelta(0)

    def matches(self, target: Target) -> bool:
        """Whether it is meant for this request."""
        return self.verb in ("", target.verb) and self.plural in ("", target.plural)


class Faults:
    """What goes wrong now."""

    def __init__(self) -> None:
        self._failures: deque[Failure] = deque()
        self._delay = timedelta(0)
        self._running = asyncio.Event()
        self._running.set()

    def fail(self, failure: Failure, *, count: int) -> None:
        """Answer the next `count` requests that match with an error."""
        self._failures.extend([failure] * count)

    def delay(self, duration: timedelta) -> None:
        """Answer every request only after this time."""
        self._delay = duration

    def stall(self) -> None:
        """Accept requests, and send nothing until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        """Answer all stalled requests, and send what open watches have missed."""
        self._running.set()

    def clear(self) -> None:
        """End all faults."""
        self._failures.clear()
        self._delay = timedelta(0)
        self.resume()

    async def wait(self) -> None:
        """Wait while the server is stalled."""
        await self._running.wait()

    async def before(self, target: Target) -> None:
        """Do what a test injected for this request. Raises `ApiError` if it is to fail."""
        await self.wait()
        if self._delay:
            await asyncio.sleep(self._delay.total_seconds())
        for failure in self._failures:
            if failure.matches(target):
                self._failures.remove(failure)
                raise ApiError(
                    failure.status,
                    _REASONS.get(failure.status, ""),
                    f"injected failure: {failure.status.phrase}",
                    retry_after=int(failure.retry_after.total_seconds()),
                )
