"""`ports.fleet.FleetReader` over HTTP.

`sentinel.core.pulse.listing` decides how a list is read to its end; this driver fetches the pages. A page that has
not changed since the last walk is decoded only if its resources are read (`known_pages`). Each page is
retried separately, because a walk of hundreds of pages that restarted at every failure would never end. The next
page is fetched while the consumer works on the current one. Failures that may pass are retried: server errors,
timeouts, truncated and malformed responses. A rejection ends the walk.

A server that asks to wait (429 or 503 with Retry-After) gets no request before that time, neither for this page
nor in a later walk. A page waits for it if its deadline allows; otherwise the walk fails, and says how long to
wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from sentinel.core.counted import counted
from sentinel.core.deferred import DeferredSequence
from sentinel.core.labels import Selector, SelectorParam
from sentinel.core.pulse import listing
from sentinel.core.pulse.known_pages import KnownPages
from sentinel.core.pulse.listing import PageShape, Position
from sentinel.core.pulse.observation import FetchedResource
from sentinel.drivers.fleet_api.connection import REQUEST_FAILURES, RequestFailure, api_unavailable
from sentinel.drivers.fleet_api.server_wait import MAX_RETRY_AFTER, ServerWait
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, TooLarge
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.runtime.backoff import Backoff

MAX_BODY = 64 * 1024 * 1024
"""A larger response is an error."""


class HttpFleetReader:
    """Walks the resources of one type."""

    def __init__(
        self,
        client: RestClient,
        *,
        resource_type: str,
        selector: Selector,
        selector_param: SelectorParam,
        page_size: int,
        timeout: timedelta,
        retry_for: timedelta,
        backoff: Backoff,
        fields: tuple[str, ...] = (),
        plain_fields: tuple[str, ...] = (),
        jitter: Callable[[], float] = random.random,
        on_retry: Callable[[str], None] = lambda problem: None,
        wait: ServerWait | None = None,
    ) -> None:
        """`timeout` bounds each request, `retry_for` all attempts at one page.

        `fields` are the paths that the consumer reads. They are requested once the server has shown that it
        supports the parameter; `plain_fields` are requested instead while all documents have been plain.
        `on_retry` is called with the first failure of a walk that is retried, so that an outage shows long before
        `retry_for` is over. `wait` is shared with a stream of the same server. Closing this closes the client.
        """
        self._client = client
        self._collection = quote(resource_type, safe="")
        self._selector = selector
        self._selection = (
            # Keep `=` and `,` readable: servers split a parameter at its first `=` only.
            f"{selector_param}={quote(selector.as_parameter(selector_param), safe='=,')}&" if selector else ""
        )
        self._fields = _fields_parameter(fields)
        self._plain_fields = _fields_parameter(plain_fields) or self._fields
        self._page_size = page_size
        self._timeout = timeout
        self._retry_for = retry_for
        self._backoff = backoff
        self._jitter = jitter
        self._on_retry = on_retry
        self._has_reported_retry = False
        self._wait = wait or ServerWait()
        self._pages = KnownPages()

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        """Yield every selected resource, page by page; see `ports.fleet.FleetReader`."""
        self._has_reported_retry = False
        self._pages.begin_walk()
        fetching: asyncio.Task[_Fetched] | None = self._start_fetch(Position(size=self._page_size))
        try:
            while fetching is not None:
                fetched = await fetching
                fetching = self._start_fetch(fetched.next_position) if fetched.next_position is not None else None
                yield fetched.page
                del fetched  # do not hold this page in memory while waiting for the next
        finally:
            if fetching is not None:
                fetching.cancel()
                await asyncio.wait({fetching})
                if not fetching.cancelled():
                    fetching.exception()  # retrieve it, otherwise asyncio logs it

    async def close(self) -> None:
        """Close the connections. Idempotent; a walk opens them again."""
        await self._client.close()

    def _start_fetch(self, position: Position) -> asyncio.Task[_Fetched]:
        return asyncio.create_task(self._fetch(position), name=f"fetch page {position.number}")

    async def _fetch(self, position: Position) -> _Fetched:
        """Fetch a page, with retries until `retry_for` is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_for.total_seconds()
        path = self._path(position)
        error: ApiUnavailable | None = None
        previous_count: int | None = None
        attempt = 0
        await self._wait_for_server(deadline)
        while True:
            timeout = min(self._timeout, timedelta(seconds=deadline - loop.time()))
            try:
                fetched = self._read_page(position, await self._get(path, timeout), previous_count)
                if fetched.ended_early_at is not None:
                    await self._require_no_more_than(fetched.ended_early_at, timeout)
                return fetched
            except listing.ShortPage as short:
                previous_count = short.count
                error = ApiUnavailable(str(short))
            except listing.NeedsAllFields:
                position = msgspec.structs.replace(position, is_plain=False)
                path = self._path(position)
                continue
            except listing.BadPage as bad:
                error = ApiUnavailable(str(bad))
            except listing.EndlessList as endless:
                error = ApiUnavailable(str(endless), needs_operator=True)
            except ApiUnavailable as latest:
                # A timeout that the deadline shortened says less than the error before it.
                if error is None or timeout == self._timeout or not isinstance(latest.__cause__, TimeoutError):
                    error = latest
            delay = max(self._backoff.delay(attempt, self._jitter()), error.retry_after).total_seconds()
            attempt += 1
            text = f"page {position.number} of {self._client.base_url}/{self._collection}: {error}"
            if error.needs_operator or loop.time() + delay >= deadline:
                tries = counted(attempt, "try", "tries")
                raise FetchError(f"{text} ({tries})", retry_after=self._wait.remaining()) from error.__cause__
            if not self._has_reported_retry:
                self._has_reported_retry = True
                self._on_retry(text)
            await asyncio.sleep(delay)

    async def _wait_for_server(self, deadline: float) -> None:
        """Wait until the server wants requests again. Raises `FetchError` if that is after the deadline."""
        remaining = self._wait.remaining()
        if not remaining:
            return
        seconds = remaining.total_seconds()
        if asyncio.get_running_loop().time() + seconds >= deadline:
            text = f"{self._client.base_url}/{self._collection}: {self._wait.reason}; nothing was requested"
            raise FetchError(text, retry_after=remaining)
        await asyncio.sleep(seconds)

    async def _require_no_more_than(self, seen: int, timeout: timedelta) -> None:
        """Fetch the current total: resources deleted during the walk may be missing, others may not."""
        page = listing.decode_page(await self._get(self._path(Position(size=1)), timeout))
        if page.total is not None and page.total > seen:
            raise listing.BadPage(f"the list ended after {seen} items of a total of {page.total}")

    def _read_page(self, position: Position, body: bytes, previous_count: int | None) -> _Fetched:
        read = self._pages.read(position, body, previous_count=previous_count)
        step = read.step
        malformed = [
            msgspec.structs.replace(item, position=f"page {position.number}, {item.position}")
            for item in read.page.malformed
        ]
        page = FleetPage(
            self._selected(step.new_resources),
            malformed,
            read.version,
            has_stream=read.page.shape is PageShape.CURSOR,
        )
        return _Fetched(page, step.next_position, step.ended_early_at)

    def _selected(self, resources: Sequence[FetchedResource]) -> Sequence[FetchedResource]:
        if not self._selector:
            return resources
        matches = self._selector.matches
        return DeferredSequence(lambda: [each for each in resources if matches(each.observation.labels)])

    def _path(self, position: Position) -> str:
        if position.after:
            fields = self._plain_fields if position.is_plain else self._fields
            place = f"after={quote(position.after, safe='')}&size={position.size}{fields}"
        else:
            place = f"page={position.number}&size={position.size}"
        return f"/{self._collection}?{self._selection}{place}"

    async def _get(self, path: str, timeout: timedelta) -> bytes:
        """Return the body of a page. Raises `ApiUnavailable` for every failure."""
        try:
            response = await self._client.request("GET", path, timeout=timeout, limit=MAX_BODY)
        except REQUEST_FAILURES as failure:
            error = _api_unavailable(failure)
            self._wait.note(failure, error.retry_after, str(error))
            raise error from failure.__cause__
        if response.status != HTTPStatus.OK:
            raise ApiUnavailable(response.line)
        return response.body


class _Fetched(msgspec.Struct, frozen=True):
    page: FleetPage
    next_position: Position | None
    ended_early_at: int | None


def _fields_parameter(fields: tuple[str, ...]) -> str:
    return f"&fields={quote(','.join(fields), safe=',')}" if fields else ""


def _api_unavailable(failure: RequestFailure) -> ApiUnavailable:
    if isinstance(failure, TooLarge):
        return ApiUnavailable(
            f"expected at most {failure.limit} bytes, got more; lower page_size", needs_operator=True
        )
    error = api_unavailable(failure)
    if error.retry_after:
        wanted, wait = error.retry_after, min(error.retry_after, MAX_RETRY_AFTER)
        cut = "" if wait == wanted else f", which is cut to {wait.total_seconds():g} s"
        return ApiUnavailable(f"{error} (asks to wait {wanted.total_seconds():g} s{cut})", retry_after=wait)
    if isinstance(failure, RequestRejected) and failure.response.has_new_token:
        return ApiUnavailable(f"{error}; the token has been replaced meanwhile")
    return error
