"""The HyperFleet API as a fleet to walk.

`sentinel.core.pulse.listing` knows how a list is read to its end; this driver gets it the answers. Each page is
retried by itself, because a walk of hundreds of pages that starts again at every fault never ends, and the next
page is on its way while the consumer is busy with the current one. A server that errs, stalls, cuts its answers
short or talks nonsense costs a retry; one that says no costs the walk.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from sentinel.core.labels import Selector, SelectorParam
from sentinel.core.pulse import listing
from sentinel.core.pulse.listing import Position
from sentinel.drivers.fleet_api.connection import FAILURES, Failure, trouble
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, TooLarge
from sentinel.ports.errors import ApiUnavailable
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.runtime.backoff import Backoff

MAX_BODY = 64 * 1024 * 1024
"""No page is larger; a server that sends more is not sending a page."""


class HttpFleetReader:
    """Walks one type of resource; one connection, kept alive from walk to walk."""

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
        random: Callable[[], float] = randomness.random,
        on_retry: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """`timeout` bounds each request, `retry_for` everything that is done for one page.

        `fields` are the paths that will be read. They are requested once the server has shown that it can restrict
        its answer to them; `plain_fields` are requested instead as long as all documents have been plain.
        `on_retry` is called with the first failure of a walk that is retried, so that it shows long before
        `retry_for` is over. The client is closed with this.
        """
        self._client = client
        self._collection = quote(resource_type, safe="")
        self._selector = selector
        self._selection = (
            # `=` and `,` stay readable: every server splits a parameter at its first `=` only.
            f"{selector_param}={quote(selector.as_parameter(selector_param), safe='=,')}&" if selector else ""
        )
        self._fields = _fields_parameter(fields)
        self._plain_fields = _fields_parameter(plain_fields) or self._fields
        self._page_size = page_size
        self._timeout = timeout
        self._retry_for = retry_for
        self._backoff = backoff
        self._random = random
        self._on_retry = on_retry
        self._has_told = False

    async def walk(self) -> AsyncGenerator[FleetPage, None]:
        """Every selected resource, page by page; see `ports.fleet.Fleet`."""
        self._has_told = False
        fetching: asyncio.Task[_Fetched] | None = self._begin(Position(size=self._page_size))
        try:
            while fetching is not None:
                fetched = await fetching
                fetching = self._begin(fetched.following) if fetched.following is not None else None
                yield fetched.page
                del fetched  # while the next page is awaited, this one is the consumer's alone
        finally:
            if fetching is not None:
                fetching.cancel()
                await asyncio.wait({fetching})
                if not fetching.cancelled():
                    fetching.exception()  # seen, so that the loop does not complain about it

    async def close(self) -> None:
        """Closes the connection; harmless when repeated. A walk opens it again."""
        await self._client.close()

    def _begin(self, position: Position) -> asyncio.Task[_Fetched]:
        return asyncio.create_task(self._fetch(position), name=f"fetch page {position.number}")

    async def _fetch(self, position: Position) -> _Fetched:
        """Asks for a page until it comes, or until it must not be asked for any longer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_for.total_seconds()
        path = self._path(position)
        trouble: ApiUnavailable | None = None
        insisted: int | None = None
        attempt = 0
        while True:
            patience = min(self._timeout, timedelta(seconds=deadline - loop.time()))
            try:
                fetched = self._take(position, await self._get(path, patience), insisted)
                if fetched.seen_of_more is not None:
                    await self._require_no_more_than(fetched.seen_of_more, patience)
                return fetched
            except listing.ShortPage as short:
                insisted = short.count
                trouble = ApiUnavailable(str(short))
            except listing.OddPage:
                position = msgspec.structs.replace(position, is_plain=False)
                path = self._path(position)
                continue
            except listing.BadPage as bad:
                trouble = ApiUnavailable(str(bad))
            except listing.EndlessList as endless:
                trouble = ApiUnavailable(str(endless), needs_operator=True)
            except ApiUnavailable as met:
                # A timeout that our own deadline has cut short says less than what was met before it.
                if trouble is None or patience == self._timeout or not isinstance(met.__cause__, TimeoutError):
                    trouble = met
            delay = max(self._backoff.delay(attempt, self._random()), trouble.retry_after).total_seconds()
            attempt += 1
            text = f"page {position.number} of {self._client.base_url}/{self._collection}: {trouble}"
            if trouble.needs_operator or loop.time() + delay >= deadline:
                tries = "1 try" if attempt == 1 else f"{attempt} tries"
                raise FetchError(f"{text} ({tries})") from trouble.__cause__
            if not self._has_told:
                self._has_told = True
                self._on_retry(text)
            await asyncio.sleep(delay)

    async def _require_no_more_than(self, seen: int, patience: timedelta) -> None:
        """Asks for a fresh total: what was deleted during a walk is missing rightly, anything else is not."""
        answer = listing.read(await self._get(self._path(Position(size=1)), patience))
        if answer.total is not None and answer.total > seen:
            raise listing.BadPage(
                f"the last page ends the list after {seen} items, {answer.total} being the total"
            )

    def _take(self, position: Position, body: bytes, insisted: int | None) -> _Fetched:
        answer = listing.read(body)
        step = listing.advance(position, answer, insisted=insisted)
        resources = step.fresh
        if self._selector:
            matches = self._selector.matches
            resources = [resource for resource in resources if matches(resource.observation.labels)]
        malformed = [f"page {position.number}, {text}" for text in answer.malformed]
        return _Fetched(FleetPage(resources, malformed), step.following, step.seen_of_more)

    def _path(self, position: Position) -> str:
        if position.after:
            fields = self._plain_fields if position.is_plain else self._fields
            place = f"after={quote(position.after, safe='')}&size={position.size}{fields}"
        else:
            place = f"page={position.number}&size={position.size}"
        return f"/{self._collection}?{self._selection}{place}"

    async def _get(self, path: str, patience: timedelta) -> bytes:
        """One request; raises `ApiUnavailable` for everything that can go wrong with it."""
        try:
            response = await self._client.request("GET", path, timeout=patience, limit=MAX_BODY)
        except FAILURES as failure:
            raise _trouble(failure) from failure.__cause__
        if response.status != HTTPStatus.OK:
            raise ApiUnavailable(response.line)
        return response.body


class _Fetched(msgspec.Struct, frozen=True):
    page: FleetPage
    following: Position | None
    seen_of_more: int | None


def _fields_parameter(fields: tuple[str, ...]) -> str:
    return f"&fields={quote(','.join(fields), safe=',')}" if fields else ""


def _trouble(failure: Failure) -> ApiUnavailable:
    if isinstance(failure, TooLarge):
        return ApiUnavailable(f"more than {failure.limit} bytes came; lower page_size", needs_operator=True)
    met = trouble(failure)
    if met.retry_after:
        text = f"{met} (asks to wait {met.retry_after.total_seconds():g} s)"
        return ApiUnavailable(text, retry_after=met.retry_after)
    if isinstance(failure, RequestRejected) and failure.response.has_new_token:
        return ApiUnavailable(f"{met}; the token has been replaced meanwhile")
    return met
