"""The requests that a server got, like the audit log of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sentinel.testing.kube.requests import ApiRequest


class LoggedRequest(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    user_agent: str
    verb: str = ""
    """As RBAC names it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`."""
    user: str = ""
    """Empty if it is not known."""
    status: int = 0
    """0 until the response begins, and if the client did not wait for it."""


class RequestLog:
    """Requests in the order of their arrival."""

    def __init__(self) -> None:
        self._requests: list[LoggedRequest] = []
        self._changed = asyncio.Event()
        self._cleared = 0

    @property
    def requests(self) -> Sequence[LoggedRequest]:
        """All requests since the last `clear`."""
        return tuple(self._requests)

    def clear(self) -> None:
        """Forget all requests."""
        self._cleared += len(self._requests)
        self._requests.clear()

    def arrived(self, request: ApiRequest) -> int:
        """Record a request, and return its number."""
        agent = request.headers.get("user-agent", "")
        self._requests.append(LoggedRequest(request.method, request.path, request.query, agent))
        self._changed.set()
        return self._cleared + len(self._requests) - 1

    def identified(self, number: int, *, verb: str) -> None:
        """Record what a request is about."""
        self._replace(number, verb=verb)

    def answered(self, number: int, *, user: str, status: int) -> None:
        """Record the response to a request."""
        self._replace(number, user=user, status=status)

    async def wait(self, matches: Callable[[LoggedRequest], bool], *, count: int) -> None:
        """Return once `count` requests match."""
        while sum(map(matches, self._requests)) < count:
            self._changed.clear()
            await self._changed.wait()

    def _replace(self, number: int, **members: str | int) -> None:
        index = number - self._cleared
        if index >= 0:
            self._requests[index] = msgspec.structs.replace(self._requests[index], **members)
            self._changed.set()
