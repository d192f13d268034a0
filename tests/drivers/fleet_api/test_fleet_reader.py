"""The fetch driver against a server on loopback: what it asks for, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
import trustme

from sentinel.core.labels import NotSearchable, Selector, SelectorParam, equality, parse
from sentinel.core.pulse.listing import PageShape
from sentinel.core.pulse.observation import FIELDS, PLAIN_FIELDS
from sentinel.drivers.fleet_api.connection import connect
from sentinel.drivers.fleet_api.fleet_reader import MAX_BODY, HttpFleetReader
from sentinel.ports.fleet import FetchError, FleetPage
from sentinel.runtime.backoff import Backoff
from tests.support.fleet.fake_api import (
    Answer,
    Fault,
    FleetServer,
    Received,
    condition,
    every,
    make_resource,
    only,
)

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "s3cret-t0ken"
TWICE = Backoff(initial=MILLISECOND, factor=1e9, maximum=timedelta(days=1))
"""Lets a page be asked for exactly twice: the second wait would outlast anything."""
US_EAST = equality("region", "us-east")
PRODUCTION = equality("environment", "production")

MakeApi = Callable[..., HttpFleetReader]


@pytest.fixture
async def server() -> AsyncIterator[FleetServer]:
    async with FleetServer() as running:
        yield running


@pytest.fixture
async def make_api(server: FleetServer) -> AsyncIterator[MakeApi]:
    made: list[HttpFleetReader] = []

    def make(
        *,
        endpoint: str = server.url,
        token: str = "",
        token_file: Path | None = None,
        ca_file: Path | None = None,
        gzip: bool = False,
        **changes: Any,
    ) -> HttpFleetReader:
        connection = connect(
            endpoint=endpoint,
            user_agent="hyperfleet-sentinel/1.2.3",
            keep_alive=60 * SECOND,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            gzip=gzip,
        )
        arguments: dict[str, Any] = {
            "resource_type": "clusters",
            "selector": Selector(),
            "selector_param": SelectorParam.LABELS,
            "page_size": 2,
            "timeout": 5 * SECOND,
            "retry_for": 5 * SECOND,
            "backoff": Backoff(initial=MILLISECOND, maximum=4 * MILLISECOND),
        }
        made.append(HttpFleetReader(connection, **arguments | changes))
        return made[-1]

    yield make
    for api in made:
        await api.close()


async def walk(api: HttpFleetReader) -> list[FleetPage]:
    return [page async for page in api.walk()]


async def fetch_ids(api: HttpFleetReader) -> list[str]:
    return [resource.observation.id for page in await walk(api) for resource in page.resources]


async def failure(api: HttpFleetReader) -> str:
    """The text of the error that a walk ends with."""
    with pytest.raises(FetchError) as caught:
        await walk(api)
    return str(caught.value)


def queries(received: Iterable[Received]) -> list[dict[str, str]]:
    return [dict(parse_qsl(urlsplit(request.target).query)) for request in received]


class TestRequest:
    async def test_the_first_page_is_asked_for_word_for_word(self, server: FleetServer, make_api: MakeApi) -> None:
        api = make_api(selector=Selector((US_EAST, PRODUCTION)), page_size=100)

        await walk(api)

        [request] = server.received
        assert request.target == (
            "/api/hyperfleet/v1/clusters?labels=region=us-east,environment=production&page=1&size=100"
        )
        assert request.headers["User-Agent"] == "hyperfleet-sentinel/1.2.3"

    async def test_without_a_selector_there_is_no_labels_parameter(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        await walk(make_api())

        assert server.received[0].target == "/api/hyperfleet/v1/clusters?page=1&size=2"

    @pytest.mark.parametrize("endpoint", ["/", "/prefix", "/prefix/"])
    async def test_a_path_in_the_endpoint_stays(
        self, server: FleetServer, make_api: MakeApi, endpoint: str
    ) -> None:
        await walk(make_api(endpoint=f"{server.url}{endpoint}"))

        assert server.received[0].target.startswith(f"{endpoint.rstrip('/')}/api/hyperfleet/v1/clusters?")

    async def test_every_page_is_asked_for_with_the_selector(self, server: FleetServer, make_api: MakeApi) -> None:
        server.put(*(make_resource(f"cls-{n}", labels={"region": "us-east"}) for n in range(5)))

        await walk(make_api(selector=Selector((US_EAST,))))

        assert queries(server.received) == [
            {"labels": "region=us-east", "page": str(page), "size": "2"} for page in (1, 2, 3)
        ]

    async def test_a_search_is_an_expression(self, server: FleetServer, make_api: MakeApi) -> None:
        server.put(make_resource("cls-1", labels={"region": "us-east", "owner": "o'brien"}))
        server.put(make_resource("cls-2", labels={"region": "us-east"}))
        selector = Selector((US_EAST, equality("owner", "o'brien")))

        found = await fetch_ids(make_api(selector=selector, selector_param=SelectorParam.SEARCH))

        assert found == ["cls-1"]
        assert queries(server.received) == [
            {"search": "labels.region='us-east' and labels.owner='o''brien'", "page": "1", "size": "2"}
        ]

    async def test_every_operator_is_asked_for_and_checked(self, make_api: MakeApi) -> None:
        async with FleetServer(honours_selector=False) as ignorant:
            ignorant.put(make_resource("cls-1", labels={"region": "us-east", "cores": "8"}))
            ignorant.put(make_resource("cls-2", labels={"region": "us-east", "cores": "8", "env": "dev"}))
            ignorant.put(make_resource("cls-3", labels={"region": "us-west", "cores": "8"}))
            ignorant.put(make_resource("cls-4", labels={"region": "us-east"}))
            selector = parse("region in (eu,us-east),env notin (dev),cores,!paused")

            found = await fetch_ids(make_api(endpoint=ignorant.url, selector=selector))

        assert found == ["cls-1"]
        assert queries(ignorant.received)[0]["labels"] == str(selector)

    def test_a_selector_that_no_search_can_express_is_refused(self, make_api: MakeApi) -> None:
        with pytest.raises(NotSearchable, match='got "!paused"'):
            make_api(selector=parse("!paused"), selector_param=SelectorParam.SEARCH)

    @pytest.mark.parametrize("value", ["a b", "a+b", "a&b=c", "50%", "%41", "ü", "a/b#c?d", 'x"y'])
    async def test_a_value_arrives_as_it_was_written(
        self, server: FleetServer, make_api: MakeApi, value: str
    ) -> None:
        await walk(make_api(selector=Selector((equality("label", value),))))

        assert server.received[0].query["labels"] == f"label={value}"

    async def test_one_connection_serves_every_walk(self, server: FleetServer, make_api: MakeApi) -> None:
        server.put_many(5)
        api = make_api()

        await walk(api)
        await walk(api)

        assert len(server.received) == 6
        assert len({request.peer for request in server.received}) == 1

    async def test_compression_is_refused_unless_asked_for(self, server: FleetServer, make_api: MakeApi) -> None:
        await walk(make_api())
        await walk(make_api(gzip=True))

        assert [each.headers["Accept-Encoding"] for each in server.received] == ["identity", "gzip"]

    async def test_a_compressed_answer_is_read(self, server: FleetServer, make_api: MakeApi) -> None:
        body = gzip.compress(b'{"page": 1, "size": 1, "total": 1, "items": [{"id": "cls-1"}]}')
        server.script = only(1, Answer(body=body, headers={"Content-Encoding": "gzip"}))

        assert await fetch_ids(make_api(gzip=True)) == ["cls-1"]

    @pytest.mark.parametrize(
        "endpoint", ["ftp://host", "host:8080", "", "http://", "http://host?x=1", "http://host/#x", "http://a:b"]
    )
    def test_an_endpoint_that_is_none_is_refused(self, make_api: MakeApi, endpoint: str) -> None:
        with pytest.raises(ValueError, match="endpoint: expected"):
            make_api(endpoint=endpoint)

    def test_credentials_in_the_endpoint_are_refused_unseen(self, make_api: MakeApi) -> None:
        with pytest.raises(ValueError, match="no credentials") as caught:
            make_api(endpoint=f"http://user:{SECRET}@host")

        assert SECRET not in str(caught.value)


class TestShapes:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
    @pytest.mark.parametrize("shape", PageShape)
    async def test_every_shape_is_read_to_its_end(
        self, server: FleetServer, make_api: MakeApi, shape: PageShape, count: int
    ) -> None:
        server.shape = shape
        expected = server.put_many(count)

        assert await fetch_ids(make_api()) == expected

    async def test_a_bare_list_is_never_asked_for_a_second_page(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.WHOLE
        server.put_many(5)

        await walk(make_api())

        assert len(server.received) == 1

    async def test_a_server_that_knows_cursors_is_asked_with_them(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(5)
        api = make_api(fields=("id", "status.phase"))

        await walk(api)
        await walk(api)

        expected = [
            {"page": "1", "size": "2"},
            {"after": "5:2", "size": "2", "fields": "id,status.phase"},
            {"after": "5:4", "size": "2", "fields": "id,status.phase"},
        ]
        assert queries(server.received) == expected * 2

    async def test_a_cursor_that_ends_early_is_not_the_end_of_the_fleet(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(6)
        server.script = lambda request: Fault.HALF if request.query.get("after", "").endswith(":4") else None

        with pytest.raises(FetchError, match="ends the list after 5 items, 6 being the total"):
            await walk(make_api(backoff=TWICE))

    async def test_what_was_deleted_during_a_walk_is_not_missed(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        ids = server.put_many(6)

        def delete_the_last(request: Received) -> None:
            if request.number == 2:
                server.remove(ids[-1])

        server.script = delete_the_last

        assert await fetch_ids(make_api()) == ids[:-1]

    async def test_without_fields_to_ask_for_a_cursor_page_is_whole(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(3)

        await walk(make_api())

        assert queries(server.received)[1] == {"after": "3:2", "size": "2"}

    async def test_of_plain_resources_only_the_plain_fields_are_asked_for(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put(*(make_resource(f"cls-{n}", last_updated=MOMENT) for n in range(5)))

        ids = await fetch_ids(make_api(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        assert ids == [f"cls-{n}" for n in range(5)]
        asked = [query.get("fields") for query in queries(server.received)]
        assert asked == [None, ",".join(PLAIN_FIELDS), ",".join(PLAIN_FIELDS)]

    async def test_progress_is_among_the_fields_that_are_asked_for(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        for count in (1, 2, 3):
            cluster = make_resource(f"cls-{count}", last_updated=MOMENT)
            cluster["status"] |= {"last_progress_time": MOMENT.isoformat(), "progress_count": count}
            server.put(cluster)

        pages = await walk(make_api(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        seen = [resource.observation for page in pages for resource in page.resources]
        assert [(each.last_progress_time, each.progress_count) for each in seen] == [
            (MOMENT, 1),
            (MOMENT, 2),
            (MOMENT, 3),
        ]
        assert queries(server.received)[-1]["fields"] == ",".join(PLAIN_FIELDS)

    async def test_a_resource_of_another_shape_among_plain_ones_is_read_right(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put(*(make_resource(f"cls-{n}", last_updated=MOMENT) for n in range(7)))
        conditions = [condition("Ready", "True", last_updated="2026-03-01T12:00:00Z")]
        server.put(make_resource("cls-3", phase=None, observed_generation=None, conditions=conditions))

        pages = await walk(make_api(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        seen = {resource.observation.id: resource.observation for page in pages for resource in page.resources}
        assert list(seen) == [f"cls-{n}" for n in range(7)]
        assert (seen["cls-3"].is_ready, seen["cls-3"].last_updated_time) == (True, MOMENT)
        asked = [query.get("fields") for query in queries(server.received)]
        plain, whole = ",".join(PLAIN_FIELDS), ",".join(FIELDS)
        assert asked == [None, plain, whole, whole, whole]

    async def test_a_fleet_that_begins_with_conditions_is_asked_for_them(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.shape = PageShape.CURSOR
        server.put_many(3)

        await walk(make_api(fields=FIELDS, plain_fields=PLAIN_FIELDS))

        assert queries(server.received)[1]["fields"] == ",".join(FIELDS)

    async def test_a_server_without_cursors_is_never_asked_with_them(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.put_many(5)

        await walk(make_api(fields=("id",)))

        assert all(query.keys() == {"page", "size"} for query in queries(server.received))

    async def test_a_cursor_arrives_as_the_server_gave_it(self, server: FleetServer, make_api: MakeApi) -> None:
        cursor = base64.b64encode(b"\xff\xfe?&+").decode() + "&page=7"
        first = msgspec.json.encode({"items": [{"id": "a"}], "total": 2, "next": cursor})
        server.script = only(1, Answer(body=first))
        server.shape = PageShape.WHOLE  # whatever comes then ends the walk

        await failure(make_api(page_size=1, backoff=TWICE))

        assert server.received[1].query["after"] == cursor

    async def test_a_cursor_that_repeats_ends_the_walk_with_an_error(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.script = lambda request: Answer(
            body=msgspec.json.encode({"items": [{"id": str(request.number)}], "total": 9, "next": "x"})
        )

        assert "leads back" in await failure(make_api(page_size=1))
        assert len(server.received) == 2

    async def test_a_list_that_grows_for_ever_ends_the_walk_with_an_error(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        def grow(request: Received) -> Answer:
            items = [{"id": f"{request.page}-{n}"} for n in range(1000)]
            return Answer(body=msgspec.json.encode({"items": items, "total": 1000 * (request.page + 1)}))

        server.script = grow

        assert "more are announced" in await failure(make_api(page_size=1000))

    async def test_labels_are_checked_on_what_comes_back(self, make_api: MakeApi) -> None:
        ignorant = FleetServer(honours_selector=False)
        ignorant.put(
            make_resource("cls-1", labels={"region": "us-east"}),
            make_resource("cls-2", labels={"region": "us-west"}),
            make_resource("cls-3"),
            make_resource("cls-4", labels={"region": "us-east", "tier": "gold"}),
        )

        async with ignorant:
            found = await fetch_ids(make_api(endpoint=ignorant.url, selector=Selector((US_EAST,))))

        assert found == ["cls-1", "cls-4"]

    async def test_a_malformed_item_is_told_with_its_place_and_without_its_values(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.put_many(2)
        server.put({"id": "cls-x", "generation": SECRET}, make_resource("cls-y"))

        pages = await walk(make_api())

        assert [list(page.malformed) for page in pages] == [
            [],
            ["page 2, items[0]: Expected `int | null`, got `str` - at `$.generation`"],
        ]
        assert [resource.observation.id for resource in pages[1].resources] == ["cls-y"]

    async def test_a_page_of_malformed_items_is_not_the_end(self, server: FleetServer, make_api: MakeApi) -> None:
        server.put({"id": 1}, {"id": 2}, make_resource("cls-1"))

        pages = await walk(make_api())

        assert [len(page.malformed) for page in pages] == [2, 0]
        assert [len(page.resources) for page in pages] == [0, 1]


class TestChangeInMidWalk:
    async def test_an_insert_before_what_was_read_repeats_nothing(self, make_api: MakeApi) -> None:
        def insert(request: Received) -> None:
            if request.number == 2:
                newest_first.put(make_resource("new"))

        newest_first = FleetServer(newest_first=True, script=insert)
        expected = newest_first.put_many(6)[::-1]
        async with newest_first:
            found = await fetch_ids(make_api(endpoint=newest_first.url))

        assert found == expected
        assert len(newest_first.received) == 4

    async def test_a_deletion_between_pages_loses_nothing(self, server: FleetServer, make_api: MakeApi) -> None:
        def delete(request: Received) -> None:
            if request.number == 2:
                server.remove("cls-0")

        server.script = delete
        expected = server.put_many(6)

        assert set(await fetch_ids(make_api())) == set(expected)

    async def test_what_is_deleted_from_a_cursor_walk_is_not_missed(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        def delete(request: Received) -> None:
            if request.number == 2:
                server.remove("cls-4")

        server.script = delete
        server.shape = PageShape.CURSOR
        server.put_many(6)

        assert await fetch_ids(make_api()) == ["cls-0", "cls-1", "cls-2", "cls-3", "cls-5"]


class TestStreaming:
    async def test_the_next_page_is_on_its_way_while_this_one_is_in_hand(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.put_many(6)

        async with aclosing(make_api().walk()) as pages:
            await anext(pages)

            assert [request.page for request in await server.requests(2)] == [1, 2]

    async def test_no_page_is_asked_for_before_there_is_room_for_it(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.put_many(6)

        async with aclosing(make_api().walk()) as pages:
            await anext(pages)
            await server.requests(2)
            for _ in range(1000):
                await asyncio.sleep(0)

            assert len(server.received) == 2

    async def test_closing_early_stops_the_request_that_is_under_way(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.put_many(6)
        server.script = only(2, Fault.HANG)
        api = make_api(timeout=3600 * SECOND, retry_for=3600 * SECOND)

        async with asyncio.timeout(10):
            async with aclosing(api.walk()) as pages:
                await anext(pages)
                await server.requests(2)

            await server.hung_up.wait()

    async def test_cancelling_the_consumer_stops_the_request_it_waits_for(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.script = only(1, Fault.HANG)
        consumer = asyncio.create_task(walk(make_api(timeout=3600 * SECOND, retry_for=3600 * SECOND)))
        await server.requests(1)

        consumer.cancel()

        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await consumer
            await server.hung_up.wait()

    async def test_a_failure_that_nobody_waits_for_any_more_is_quiet(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        server.put_many(6)
        server.script = only(2, Answer(status=404))

        async with aclosing(make_api().walk()) as pages:
            await anext(pages)
            await server.requests(2)
            for _ in range(1000):
                await asyncio.sleep(0)

        assert complaints == []

    async def test_a_walk_after_closing_opens_the_connection_again(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        expected = server.put_many(1)
        api = make_api()
        await walk(api)

        await api.close()

        assert await fetch_ids(api) == expected


SERVER_TROUBLE = [
    Answer(status=500),
    Answer(status=503, body=b"<html>bad gateway</html>", content_type="text/html"),
    Answer(status=408),
    Answer(status=429),
    Answer(status=204),
    *(fault for fault in Fault if fault is not Fault.HANG),
]


class TestRetries:
    @pytest.mark.parametrize("shape", [PageShape.NUMBERED, PageShape.CURSOR])
    @pytest.mark.parametrize("fault", SERVER_TROUBLE)
    @pytest.mark.parametrize("number", [1, 2, 3])
    async def test_trouble_with_one_page_costs_one_more_request(
        self, server: FleetServer, make_api: MakeApi, fault: Fault | Answer, number: int, shape: PageShape
    ) -> None:
        server.shape = shape
        expected = server.put_many(6)
        server.script = only(number, fault)

        assert await fetch_ids(make_api()) == expected
        assert len(server.received) == 4

    async def test_a_request_that_hangs_is_given_up_and_repeated(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        expected = server.put_many(3)
        server.script = only(1, Fault.HANG)

        assert await fetch_ids(make_api(timeout=50 * MILLISECOND)) == expected

    @pytest.mark.parametrize("shape", [PageShape.NUMBERED, PageShape.CURSOR])
    async def test_with_every_seventh_request_failing_a_walk_completes(
        self, server: FleetServer, make_api: MakeApi, shape: PageShape
    ) -> None:
        server.shape = shape
        server.script = every(7, *SERVER_TROUBLE)
        expected = server.put_many(300)

        assert await fetch_ids(make_api(page_size=3)) == expected

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (Answer(status=500), "500 Internal Server Error"),
            (Fault.GARBAGE, "expected a page of resources"),
            (Fault.TRUNCATED, "payload is not completed"),
            (
                Fault.HALF,
                "expected 2 items, 3 being the total, got 1; does the server cap its pages below page_size?",
            ),
            (Fault.EMPTY, "expected a page of resources"),
            (Fault.DROP, "Server disconnected"),
        ],
    )
    async def test_trouble_that_stays_is_a_fetch_error_that_names_it(
        self, server: FleetServer, make_api: MakeApi, fault: Fault | Answer, reason: str
    ) -> None:
        server.put_many(3)
        server.script = lambda _: fault

        text = await failure(make_api(backoff=TWICE))

        assert text.startswith(f"page 1 of {server.url}/api/hyperfleet/v1/clusters: ")
        assert reason in text
        assert text.endswith("(2 tries)")

    async def test_a_server_that_never_answers_is_a_fetch_error(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.script = lambda _: Fault.HANG

        text = await failure(make_api(timeout=20 * MILLISECOND, backoff=TWICE))

        assert text.endswith("no complete answer within 0.02 s (2 tries)")

    async def test_the_last_try_is_cut_short_without_hiding_the_reason(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.script = lambda _: Fault.HANG

        text = await failure(make_api(timeout=20 * MILLISECOND, retry_for=30 * MILLISECOND))

        assert "no complete answer within 0.02 s" in text

    async def test_a_wait_that_would_outlast_what_a_page_may_take_is_not_begun(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.script = lambda _: Answer(status=500)
        hourly = Backoff(initial=3600 * SECOND, maximum=3600 * SECOND)

        assert (await failure(make_api(backoff=hourly))).endswith("(1 try)")

    async def test_the_first_failure_of_a_walk_is_told_before_its_patience_is_over(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.put_many(6)
        server.script = lambda request: Answer(status=503) if request.number % 2 else None
        heard: list[str] = []
        api = make_api(on_retry=heard.append)

        await walk(api)
        after_one_walk = list(heard)
        await walk(api)

        assert after_one_walk == [f"page 1 of {server.url}/api/hyperfleet/v1/clusters: 503 Service Unavailable"]
        assert heard == after_one_walk * 2

    async def test_a_failure_that_is_the_end_is_told_by_its_error_alone(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        server.script = lambda _: Answer(status=403)
        heard: list[str] = []

        await failure(make_api(on_retry=heard.append))

        assert heard == []

    async def test_a_failure_names_its_page(self, server: FleetServer, make_api: MakeApi) -> None:
        server.put_many(6)
        server.script = lambda request: Answer(status=404) if request.page == 3 else None

        assert (await failure(make_api())).startswith("page 3 of ")

    async def test_a_server_that_is_not_there_is_a_fetch_error(self, make_api: MakeApi) -> None:
        async with FleetServer() as gone:
            pass

        text = await failure(make_api(endpoint=gone.url, backoff=TWICE))

        assert "Cannot connect to host 127.0.0.1" in text

    async def test_a_server_that_comes_back_is_found_by_the_next_walk(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        expected = server.put_many(3)
        server.script = lambda _: Fault.DROP
        api = make_api(backoff=TWICE)
        await failure(api)

        server.script = None

        assert await fetch_ids(api) == expected

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 422])
    async def test_a_refusal_is_never_asked_about_again(
        self, server: FleetServer, make_api: MakeApi, status: int
    ) -> None:
        server.script = lambda _: Answer(status=status)

        text = await failure(make_api())

        assert f": {status} " in text
        assert text.endswith("(1 try)")
        assert len(server.received) == 1

    async def test_answers_larger_than_any_page_are_not_read(self, server: FleetServer, make_api: MakeApi) -> None:
        bomb = gzip.compress(bytes(MAX_BODY + 1), compresslevel=1)
        server.script = lambda _: Answer(body=bomb, headers={"Content-Encoding": "gzip"})

        assert "page_size" in await failure(make_api())
        assert len(server.received) == 1

    async def test_what_is_not_http_is_a_fetch_error(self, make_api: MakeApi) -> None:
        async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x16\x03\x01 nonsense\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        listener = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        async with listener:
            port = listener.sockets[0].getsockname()[1]
            api = make_api(endpoint=f"http://127.0.0.1:{port}", token=SECRET, backoff=TWICE)

            text = await failure(api)

        assert "malformed HTTP" in text
        assert SECRET not in text


class TestRetryAfter:
    async def test_the_wait_that_the_server_asks_for_is_kept(self, server: FleetServer, make_api: MakeApi) -> None:
        moments: list[float] = []

        def busy(request: Received) -> Answer | None:
            moments.append(asyncio.get_running_loop().time())
            return Answer(status=429, headers={"Retry-After": "1"}) if request.number == 1 else None

        server.script = busy

        await walk(make_api())

        assert moments[1] - moments[0] >= 1

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize(
        "headers",
        [
            {"Retry-After": "3600"},
            {
                "Retry-After": format_datetime(datetime(2026, 3, 1, 13, tzinfo=UTC), usegmt=True),
                "Date": format_datetime(datetime(2026, 3, 1, 12, tzinfo=UTC), usegmt=True),
            },
        ],
    )
    async def test_a_wait_beyond_what_a_page_may_take_ends_the_walk_at_once(
        self, server: FleetServer, make_api: MakeApi, headers: dict[str, str], status: int
    ) -> None:
        server.script = lambda _: Answer(status=status, headers=headers)

        text = await failure(make_api())

        assert "asks to wait 3600 s" in text
        assert len(server.received) == 1

    @pytest.mark.parametrize(
        "value", ["soon", "-5", "1.5", "", "9" * 30, "Sun, 01 Mar 1998 12:00:00 GMT", "Sun, 01 Mar 2026 12:00:00"]
    )
    async def test_a_wait_that_makes_no_sense_is_ignored(
        self, server: FleetServer, make_api: MakeApi, value: str
    ) -> None:
        server.script = only(1, Answer(status=429, headers={"Retry-After": value}))

        assert await fetch_ids(make_api()) == []


class TestExplanations:
    @pytest.mark.parametrize(
        ("body", "content_type", "said"),
        [
            (
                b'{"title": "Bad", "detail": "size is at most 100"}',
                "application/problem+json",
                "size is at most 100",
            ),
            (b'{"code": "HYPERFLEET-9", "reason": "no such kind"}', "application/json", "no such kind"),
            (b'{"message": "nope"}', "application/json", "nope"),
            (b'{"title": "Bad"}', "application/problem+json", "Bad"),
            (b"plain\r\n\x1b[31mwords", "text/plain", "plain [31mwords"),
            (b'{"detail": 7}', "application/json", '{"detail": 7}'),
            (b"\xff\xfe", "text/plain", "\ufffd\ufffd"),
        ],
    )
    async def test_a_refusal_says_what_the_server_said(
        self, server: FleetServer, make_api: MakeApi, body: bytes, content_type: str, said: str
    ) -> None:
        server.script = lambda _: Answer(status=400, body=body, content_type=content_type)

        assert f": 400 Bad Request: {said} (1 try)" in await failure(make_api())

    async def test_a_web_page_explains_nothing(self, server: FleetServer, make_api: MakeApi) -> None:
        server.script = lambda _: Answer(status=404, body=b"<html>", content_type="text/html")

        assert "404 Not Found (1 try)" in await failure(make_api())

    async def test_a_long_explanation_is_cut(self, server: FleetServer, make_api: MakeApi) -> None:
        server.script = lambda _: Answer(status=400, body=b"x" * 100_000, content_type="text/plain")

        assert len(await failure(make_api())) < 500

    async def test_an_explanation_that_breaks_off_leaves_the_status(self, make_api: MakeApi) -> None:
        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 99\r\n\r\nbecause")
            writer.close()
            await writer.wait_closed()

        listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with listener:
            port = listener.sockets[0].getsockname()[1]

            assert "403 Forbidden" in await failure(make_api(endpoint=f"http://127.0.0.1:{port}"))

    @pytest.mark.parametrize(
        ("location", "shown"),
        [
            (f"https://elsewhere.example/login?token={SECRET}", "https://elsewhere.example;"),
            ("/login", "elsewhere;"),
            ("http://[", "elsewhere;"),
        ],
    )
    async def test_a_redirect_is_not_followed(
        self, server: FleetServer, make_api: MakeApi, location: str, shown: str
    ) -> None:
        server.script = lambda _: Answer(status=302, headers={"Location": location})

        text = await failure(make_api(token=SECRET))

        assert f"302 Found to {shown}" in text
        assert SECRET not in text
        assert len(server.received) == 1


class TestToken:
    async def test_it_is_sent_as_bearer(self, server: FleetServer, make_api: MakeApi) -> None:
        await walk(make_api(token=SECRET))

        assert server.received[0].headers["Authorization"] == f"Bearer {SECRET}"

    async def test_without_one_nothing_is_sent(self, server: FleetServer, make_api: MakeApi) -> None:
        await walk(make_api())

        assert "Authorization" not in server.received[0].headers

    async def test_it_is_read_from_its_file_without_the_newline(
        self, server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text(f"  {SECRET}\n")

        await walk(make_api(token_file=file))

        assert server.received[0].headers["Authorization"] == f"Bearer {SECRET}"

    async def test_one_that_is_given_wins_over_the_file(
        self, server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        await walk(make_api(token="given", token_file=tmp_path / "missing"))

        assert server.received[0].headers["Authorization"] == "Bearer given"

    async def test_a_file_that_rotates_is_followed(
        self, server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        api = make_api(token_file=file)
        await walk(api)

        file.with_suffix(".new").write_text("new")
        file.with_suffix(".new").rename(file)
        await walk(api)

        assert [each.headers["Authorization"] for each in server.received] == ["Bearer old", "Bearer new"]

    async def test_a_token_that_rotates_while_it_is_refused_is_tried(
        self, server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        file = tmp_path / "token"
        file.write_text("old")
        expected = server.put_many(1)

        def refuse(request: Received) -> Answer | None:
            if request.headers["Authorization"] == "Bearer new":
                return None
            file.write_text("new")
            return Answer(status=401)

        server.script = refuse

        assert await fetch_ids(make_api(token_file=file)) == expected

    async def test_a_missing_file_is_named(self, server: FleetServer, make_api: MakeApi, tmp_path: Path) -> None:
        file = tmp_path / "token"

        text = await failure(make_api(token_file=file))

        assert f"token_file {file}: No such file or directory" in text
        assert server.received == []

    @pytest.mark.parametrize("content", [f"{SECRET}\nX-Evil: 1", f"{SECRET} two", f"{SECRET}ü", f"{SECRET}\0"])
    async def test_one_that_cannot_be_sent_is_refused_unseen(
        self, server: FleetServer, make_api: MakeApi, tmp_path: Path, content: str
    ) -> None:
        file = tmp_path / "token"
        file.write_text(content)

        in_file = await failure(make_api(token_file=file))
        given = await failure(make_api(token=content))

        assert f"token_file {file}: expected visible ASCII characters alone" in in_file
        assert "token: expected visible ASCII characters alone" in given
        assert SECRET not in in_file + given
        assert server.received == []

    async def test_an_empty_file_is_refused(self, make_api: MakeApi, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("\n")

        assert "got nothing" in await failure(make_api(token_file=file))

    async def test_a_server_that_echoes_it_does_not_make_us_show_it(
        self, server: FleetServer, make_api: MakeApi
    ) -> None:
        echo = msgspec.json.encode({"detail": f"Bearer {SECRET} has expired"})
        server.script = lambda _: Answer(status=401, body=echo)

        with pytest.raises(FetchError) as caught:
            await walk(make_api(token=SECRET))

        assert "Bearer *** has expired" in str(caught.value)
        assert SECRET not in repr(caught.value) + repr(caught.value.__cause__)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_server(authority: trustme.CA) -> AsyncIterator[FleetServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with FleetServer(tls=context) as running:
        running.put_many(3)
        yield running


class TestTls:
    async def test_an_authority_of_our_own_is_trusted(
        self, tls_server: FleetServer, make_api: MakeApi, authority: trustme.CA, tmp_path: Path
    ) -> None:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

        found = await fetch_ids(make_api(endpoint=tls_server.url, ca_file=tmp_path / "ca.pem"))

        assert found == ["cls-0", "cls-1", "cls-2"]

    async def test_an_unknown_authority_is_not_trusted_and_said_so(
        self, tls_server: FleetServer, make_api: MakeApi
    ) -> None:
        text = await failure(make_api(endpoint=tls_server.url))

        assert "certificate is not trusted (unable to get local issuer certificate)" in text
        assert "ca_file" in text
        assert tls_server.received == []

    async def test_an_authority_that_is_replaced_is_followed(
        self, tls_server: FleetServer, make_api: MakeApi, authority: trustme.CA, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.pem"
        trustme.CA().cert_pem.write_to_path(str(file))
        api = make_api(endpoint=tls_server.url, ca_file=file)
        await failure(api)

        authority.cert_pem.write_to_path(str(file))

        assert len(await fetch_ids(api)) == 3

    async def test_a_missing_authority_is_named(
        self, tls_server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.pem"

        text = await failure(make_api(endpoint=tls_server.url, ca_file=file))

        assert f"ca_file {file}: No such file or directory" in text

    async def test_an_authority_that_is_none_is_named(
        self, tls_server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.pem"
        file.write_text("not a certificate")

        assert f"ca_file {file}: " in await failure(make_api(endpoint=tls_server.url, ca_file=file))

    async def test_without_tls_the_authority_is_not_read(
        self, server: FleetServer, make_api: MakeApi, tmp_path: Path
    ) -> None:
        assert await fetch_ids(make_api(ca_file=tmp_path / "missing")) == []
