"""The HTTP fleet reader against a server on loopback: its requests, and how it walks pages."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sentinel.core.labels import NotSearchable, Selector, SelectorParam, equality, parse
from sentinel.core.pulse.listing import PageShape
from sentinel.core.pulse.observation import FIELDS, PLAIN_FIELDS, MalformedItem
from sentinel.ports.fleet import FetchError
from tests.drivers.fleet_api.walking import SECOND, SECRET, TWICE, MakeReader, failure, fetch_ids, queries, walk
from tests.support.fleet.fake_api import (
    FakeResponse,
    FleetRequest,
    FleetServer,
    ResponseFault,
    condition,
    make_resource,
    only,
)

TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)
US_EAST = equality("region", "us-east")
PRODUCTION = equality("environment", "production")


def removing(server: FleetServer, resource_id: str) -> Callable[[FleetRequest], None]:
    """A script that removes a resource before the second response."""

    def script(request: FleetRequest) -> None:
        if request.number == 2:
            server.remove(resource_id)

    return script


class TestRequest:
    async def test_the_first_request_is_exactly_as_documented(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        reader = make_reader(selector=Selector((US_EAST, PRODUCTION)), page_size=100)

        await walk(reader)

        [request] = server.received
        assert request.target == (
            "/api/hyperfleet/v1/clusters?labels=region=us-east,environment=production&page=1&size=100"
        )
        assert request.headers["User-Agent"] == "hyperfleet-sentinel/1.2.3"

    async def test_without_a_selector_there_is_no_labels_parameter(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        await walk(make_reader())

        assert server.received[0].target == "/api/hyperfleet/v1/clusters?page=1&size=2"

    @pytest.mark.parametrize("endpoint", ["/", "/prefix", "/prefix/"])
    async def test_the_path_of_the_endpoint_is_kept(
        self, server: FleetServer, make_reader: MakeReader, endpoint: str
    ) -> None:
        await walk(make_reader(endpoint=f"{server.url}{endpoint}"))

        assert server.received[0].target.startswith(f"{endpoint.rstrip('/')}/api/hyperfleet/v1/clusters?")

    async def test_every_request_has_the_selector(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put(*(make_resource(f"cls-{n}", labels={"region": "us-east"}) for n in range(5)))

        await walk(make_reader(selector=Selector((US_EAST,))))

        assert queries(server.received) == [
            {"labels": "region=us-east", "page": str(page), "size": "2"} for page in (1, 2, 3)
        ]

    async def test_a_search_is_an_expression(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put(make_resource("cls-1", labels={"region": "us-east", "owner": "o'brien"}))
        server.put(make_resource("cls-2", labels={"region": "us-east"}))
        selector = Selector((US_EAST, equality("owner", "o'brien")))

        found = await fetch_ids(make_reader(selector=selector, selector_param=SelectorParam.SEARCH))

        assert found == ["cls-1"]
        assert queries(server.received) == [
            {"search": "labels.region='us-east' and labels.owner='o''brien'", "page": "1", "size": "2"}
        ]

    async def test_every_operator_is_sent_and_checked(self, make_reader: MakeReader) -> None:
        async with FleetServer(honours_selector=False) as unfiltered:
            unfiltered.put(make_resource("cls-1", labels={"region": "us-east", "cores": "8"}))
            unfiltered.put(make_resource("cls-2", labels={"region": "us-east", "cores": "8", "env": "dev"}))
            unfiltered.put(make_resource("cls-3", labels={"region": "us-west", "cores": "8"}))
            unfiltered.put(make_resource("cls-4", labels={"region": "us-east"}))
            selector = parse("region in (eu,us-east),env notin (dev),cores,!paused")

            found = await fetch_ids(make_reader(endpoint=unfiltered.url, selector=selector))

        assert found == ["cls-1"]
        assert queries(unfiltered.received)[0]["labels"] == str(selector)

    def test_a_selector_that_search_cannot_express_is_refused(self, make_reader: MakeReader) -> None:
        with pytest.raises(NotSearchable, match='got "!paused"'):
            make_reader(selector=parse("!paused"), selector_param=SelectorParam.SEARCH)

    @pytest.mark.parametrize("value", ["a b", "a+b", "a&b=c", "50%", "%41", "ü", "a/b#c?d", 'x"y'])
    async def test_a_value_is_encoded_exactly_once(
        self, server: FleetServer, make_reader: MakeReader, value: str
    ) -> None:
        await walk(make_reader(selector=Selector((equality("label", value),))))

        assert server.received[0].query["labels"] == f"label={value}"

    async def test_one_connection_serves_every_walk(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put_many(5)
        reader = make_reader()

        await walk(reader)
        await walk(reader)

        assert len(server.received) == 6
        assert len({request.peer for request in server.received}) == 1

    async def test_compression_is_requested_only_if_configured(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        await walk(make_reader())
        await walk(make_reader(gzip=True))

        assert [each.headers["Accept-Encoding"] for each in server.received] == ["identity", "gzip"]

    async def test_a_compressed_response_is_read(self, server: FleetServer, make_reader: MakeReader) -> None:
        body = gzip.compress(b'{"page": 1, "size": 1, "total": 1, "items": [{"id": "cls-1"}]}')
        server.script = only(1, FakeResponse(body=body, headers={"Content-Encoding": "gzip"}))

        assert await fetch_ids(make_reader(gzip=True)) == ["cls-1"]

    @pytest.mark.parametrize(
        "endpoint", ["ftp://host", "host:8080", "", "http://", "http://host?x=1", "http://host/#x", "http://a:b"]
    )
    def test_an_invalid_endpoint_is_refused(self, make_reader: MakeReader, endpoint: str) -> None:
        with pytest.raises(ValueError, match="endpoint: expected"):
            make_reader(endpoint=endpoint)

    def test_credentials_in_the_endpoint_are_refused_without_showing_them(self, make_reader: MakeReader) -> None:
        with pytest.raises(ValueError, match="no credentials") as caught:
            make_reader(endpoint=f"http://user:{SECRET}@host")

        assert SECRET not in str(caught.value)


class TestShapes:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
    @pytest.mark.parametrize("shape", PageShape)
    async def test_every_shape_is_read_to_its_end(
        self, server: FleetServer, make_reader: MakeReader, shape: PageShape, count: int
    ) -> None:
        server.shape = shape
        expected = server.put_many(count)

        assert await fetch_ids(make_reader()) == expected

    async def test_a_bare_list_has_only_one_page(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.shape = PageShape.WHOLE
        server.put_many(5)

        await walk(make_reader())

        assert len(server.received) == 1

    async def test_cursors_and_fields_are_used_if_the_server_has_them(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(5)
        reader = make_reader(fields=("id", "status.phase"))

        await walk(reader)
        await walk(reader)

        expected = [
            {"page": "1", "size": "2"},
            {"after": "5:2", "size": "2", "fields": "id,status.phase"},
            {"after": "5:4", "size": "2", "fields": "id,status.phase"},
        ]
        assert queries(server.received) == expected * 2

    @pytest.mark.parametrize("shape", list(PageShape))
    async def test_a_server_with_cursors_has_streams(
        self, server: FleetServer, make_reader: MakeReader, shape: PageShape
    ) -> None:
        server.shape = shape
        server.put_many(3)
        reader = make_reader()

        pages = [*await walk(reader), *await walk(reader)]

        assert {page.has_stream for page in pages} == {shape is PageShape.CURSOR}

    async def test_a_cursor_that_ends_too_early_is_an_error(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(6)
        server.script = lambda request: (
            ResponseFault.HALF if request.query.get("after", "").endswith(":4") else None
        )

        with pytest.raises(FetchError, match="the list ended after 5 items of a total of 6"):
            await walk(make_reader(backoff=TWICE))

    async def test_without_fields_a_cursor_request_has_none(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(3)

        await walk(make_reader())

        assert queries(server.received)[1] == {"after": "3:2", "size": "2"}

    async def test_for_plain_resources_only_the_plain_fields_are_requested(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put(*(make_resource(f"cls-{n}", last_updated=TIME) for n in range(5)))

        ids = await fetch_ids(make_reader(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        assert ids == [f"cls-{n}" for n in range(5)]
        requested = [query.get("fields") for query in queries(server.received)]
        assert requested == [None, ",".join(PLAIN_FIELDS), ",".join(PLAIN_FIELDS)]

    async def test_progress_is_among_the_requested_fields(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        for count in (1, 2, 3):
            cluster = make_resource(f"cls-{count}", last_updated=TIME)
            cluster["status"] |= {"last_progress_time": TIME.isoformat(), "progress_count": count}
            server.put(cluster)

        pages = await walk(make_reader(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        seen = [resource.observation for page in pages for resource in page.resources]
        assert [(each.last_progress_time, each.progress_count) for each in seen] == [
            (TIME, 1),
            (TIME, 2),
            (TIME, 3),
        ]
        assert queries(server.received)[-1]["fields"] == ",".join(PLAIN_FIELDS)

    async def test_a_resource_of_another_shape_among_plain_ones_is_read(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put(*(make_resource(f"cls-{n}", last_updated=TIME) for n in range(7)))
        conditions = [condition("Ready", "True", last_updated="2026-03-01T12:00:00Z")]
        server.put(make_resource("cls-3", phase=None, observed_generation=None, conditions=conditions))

        pages = await walk(make_reader(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        seen = {resource.observation.id: resource.observation for page in pages for resource in page.resources}
        assert list(seen) == [f"cls-{n}" for n in range(7)]
        assert (seen["cls-3"].is_ready, seen["cls-3"].last_updated_time) == (True, TIME)
        requested = [query.get("fields") for query in queries(server.received)]
        plain, whole = ",".join(PLAIN_FIELDS), ",".join(FIELDS)
        assert requested == [None, plain, whole, whole, whole]

    async def test_a_fleet_that_starts_with_conditions_is_read_with_them(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(3)

        await walk(make_reader(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        assert queries(server.received)[1]["fields"] == ",".join(FIELDS)

    async def test_a_server_without_cursors_gets_no_fields_parameter(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.put_many(5)

        await walk(make_reader(fields=("id",)))

        assert all(query.keys() == {"page", "size"} for query in queries(server.received))

    async def test_a_cursor_is_sent_back_unchanged(self, server: FleetServer, make_reader: MakeReader) -> None:
        cursor = base64.b64encode(b"\xff\xfe?&+").decode() + "&page=7"
        first = msgspec.json.encode({"items": [{"id": "a"}], "total": 2, "next": cursor})
        server.script = only(1, FakeResponse(body=first))
        server.shape = PageShape.WHOLE  # ends the walk with the second page

        await failure(make_reader(page_size=1, backoff=TWICE))

        assert server.received[1].query["after"] == cursor

    async def test_a_repeated_cursor_is_an_error(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.script = lambda request: FakeResponse(
            body=msgspec.json.encode({"items": [{"id": str(request.number)}], "total": 9, "next": "x"})
        )

        assert "leads back" in await failure(make_reader(page_size=1))
        assert len(server.received) == 2

    async def test_a_list_that_grows_endlessly_is_an_error(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        def grow(request: FleetRequest) -> FakeResponse:
            items = [{"id": f"{request.page}-{n}"} for n in range(1000)]
            return FakeResponse(body=msgspec.json.encode({"items": items, "total": 1000 * (request.page + 1)}))

        server.script = grow

        assert "and a next page" in await failure(make_reader(page_size=1000))

    async def test_labels_of_returned_resources_are_checked(self, make_reader: MakeReader) -> None:
        unfiltered = FleetServer(honours_selector=False)
        unfiltered.put(
            make_resource("cls-1", labels={"region": "us-east"}),
            make_resource("cls-2", labels={"region": "us-west"}),
            make_resource("cls-3"),
            make_resource("cls-4", labels={"region": "us-east", "tier": "gold"}),
        )

        async with unfiltered:
            found = await fetch_ids(make_reader(endpoint=unfiltered.url, selector=Selector((US_EAST,))))

        assert found == ["cls-1", "cls-4"]

    async def test_a_malformed_item_is_named_and_located_without_its_values(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.put_many(2)
        server.put({"id": "cls-x", "generation": SECRET}, make_resource("cls-y"))

        pages = await walk(make_reader())

        assert [list(page.malformed) for page in pages] == [
            [],
            [MalformedItem("cls-x", "Expected `int | null`, got `str` - at `$.generation`", "page 2, items[0]")],
        ]
        assert [resource.observation.id for resource in pages[1].resources] == ["cls-y"]

    async def test_a_page_of_malformed_items_is_not_the_end(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.put({"id": 1}, {"id": 2}, make_resource("cls-1"))

        pages = await walk(make_reader())

        assert [len(page.malformed) for page in pages] == [2, 0]
        assert [len(page.resources) for page in pages] == [0, 1]


class TestChangesDuringTheWalk:
    async def test_an_insert_during_the_walk_repeats_nothing(self, make_reader: MakeReader) -> None:
        def insert(request: FleetRequest) -> None:
            if request.number == 2:
                newest_first.put(make_resource("new"))

        newest_first = FleetServer(newest_first=True, script=insert)
        expected = newest_first.put_many(6)[::-1]
        async with newest_first:
            found = await fetch_ids(make_reader(endpoint=newest_first.url))

        assert found == expected
        assert len(newest_first.received) == 4

    async def test_a_deletion_between_pages_loses_nothing(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        expected = server.put_many(6)
        server.script = removing(server, "cls-0")

        assert set(await fetch_ids(make_reader())) == set(expected)

    @pytest.mark.parametrize("removed", ["cls-4", "cls-5"])
    async def test_a_deletion_during_a_cursor_walk_is_not_an_error(
        self, server: FleetServer, make_reader: MakeReader, removed: str
    ) -> None:
        server.shape = PageShape.CURSOR
        ids = server.put_many(6)
        server.script = removing(server, removed)

        assert await fetch_ids(make_reader()) == [each for each in ids if each != removed]


class TestPrefetch:
    async def test_the_next_page_is_prefetched(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put_many(6)

        async with aclosing(make_reader().walk()) as pages:
            await anext(pages)

            assert [request.page for request in await server.requests(2)] == [1, 2]

    async def test_only_one_page_is_prefetched(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put_many(6)

        async with aclosing(make_reader().walk()) as pages:
            await anext(pages)
            await server.requests(2)
            for _ in range(1000):
                await asyncio.sleep(0)

            assert len(server.received) == 2

    async def test_closing_early_cancels_the_request(self, server: FleetServer, make_reader: MakeReader) -> None:
        server.put_many(6)
        server.script = only(2, ResponseFault.HANG)
        reader = make_reader(timeout=3600 * SECOND, retry_for=3600 * SECOND)

        async with asyncio.timeout(10):
            async with aclosing(reader.walk()) as pages:
                await anext(pages)
                await server.requests(2)

            await server.hung_up.wait()

    async def test_cancelling_the_consumer_cancels_the_request(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        server.script = only(1, ResponseFault.HANG)
        consumer = asyncio.create_task(walk(make_reader(timeout=3600 * SECOND, retry_for=3600 * SECOND)))
        await server.requests(1)

        consumer.cancel()

        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await consumer
            await server.hung_up.wait()

    async def test_a_failed_prefetch_after_closing_is_not_logged(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        logged: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        server.put_many(6)
        server.script = only(2, FakeResponse(status=404))

        async with aclosing(make_reader().walk()) as pages:
            await anext(pages)
            await server.requests(2)
            for _ in range(1000):
                await asyncio.sleep(0)

        assert logged == []

    async def test_a_walk_after_closing_opens_the_connection_again(
        self, server: FleetServer, make_reader: MakeReader
    ) -> None:
        expected = server.put_many(1)
        reader = make_reader()
        await walk(reader)

        await reader.close()

        assert await fetch_ids(reader) == expected
