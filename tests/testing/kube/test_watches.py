"""The fake's watches over plain HTTP: how they begin, and how a test controls them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sentinel.testing.kube import FakeKubeServer
from sentinel.testing.kube.kinds import CONFIG_MAP
from tests.support.kube.objects import put_config_maps
from tests.support.kube.plain_http import CONFIG_MAPS, PlainHttp, plain_http


class TestBeginning:
    @pytest.mark.parametrize("query", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
    async def test_without_a_version_existing_objects_come_first(
        self, server: FakeKubeServer, http: PlainHttp, query: dict[str, str]
    ) -> None:
        put_config_maps(server, "b", "a")

        async with http.watch(CONFIG_MAPS, **query) as watch:
            first = [await watch.summary(), await watch.summary()]
            put_config_maps(server, "c")

            assert first == [("ADDED", "a"), ("ADDED", "b")]
            assert await watch.summary() == ("ADDED", "c")

    async def test_initial_events_end_with_a_bookmark(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")

        async with http.watch(
            CONFIG_MAPS, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
        ) as watch:
            first, mark = await watch.summary(), await watch.next()

        assert first == ("ADDED", "a")
        assert (mark["type"], mark["object"]["metadata"]["resourceVersion"]) == (
            "BOOKMARK",
            server.resource_version,
        )
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    async def test_initial_events_can_be_declined(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")
        start = server.resource_version
        put_config_maps(server, "b")

        async with http.watch(
            CONFIG_MAPS, sendInitialEvents="false", resourceVersionMatch="NotOlderThan", resourceVersion=start
        ) as watch:
            assert await watch.summary() == ("ADDED", "b")

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({"sendInitialEvents": "true"}, 422),
            ({"resourceVersionMatch": "NotOlderThan"}, 422),
            ({"resourceVersion": "x"}, 400),
            ({"labelSelector": "a in b"}, 400),
        ],
    )
    async def test_a_wrong_parameter_is_a_status(
        self, http: PlainHttp, query: dict[str, str], status: int
    ) -> None:
        response = await http.call("GET", CONFIG_MAPS, watch="true", **query)

        assert (response.status, response.body["kind"]) == (status, "Status")

    async def test_one_object_can_be_watched(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a", "b")

        async with http.watch(f"{CONFIG_MAPS}/b") as watch:
            assert await watch.summary() == ("ADDED", "b")

    async def test_an_expired_version_is_an_event(self, server: FakeKubeServer, http: PlainHttp) -> None:
        start = server.resource_version
        put_config_maps(server, "a", "b")
        server.expire_versions()

        async with http.watch(CONFIG_MAPS, resourceVersion=start) as watch:
            event = await watch.next()

            assert watch.status == 200
            assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
            assert await watch.next() == {}

    async def test_expiry_keeps_the_last_change_as_etcd_does(
        self, server: FakeKubeServer, http: PlainHttp
    ) -> None:
        put_config_maps(server, "a")
        start = server.resource_version
        put_config_maps(server, "b")
        server.expire_versions()

        async with http.watch(CONFIG_MAPS, resourceVersion=start) as watch:
            assert await watch.summary() == ("ADDED", "b")


class TestControl:
    async def test_a_test_can_send_bookmarks(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")
        async with (
            http.watch(CONFIG_MAPS, resourceVersion=server.resource_version, allowWatchBookmarks="true") as asked,
            http.watch(CONFIG_MAPS, resourceVersion=server.resource_version) as not_asked,
        ):
            await server.wait_for_request(lambda request: request.verb == "watch", count=2)
            server.merge_patch(CONFIG_MAP, "a", {"data": {"x": "1"}}, namespace="default")
            await asked.next()
            server.send_bookmarks()
            mark = await asked.next()
            put_config_maps(server, "b")

            assert mark["object"]["metadata"]["resourceVersion"] == str(int(server.resource_version) - 1)
            assert [await not_asked.summary(), await not_asked.summary()] == [("MODIFIED", "a"), ("ADDED", "b")]

    async def test_bookmarks_come_regularly(self) -> None:
        fake = FakeKubeServer(bookmark_interval=timedelta(milliseconds=5))
        async with (
            fake as server,
            plain_http(server.url) as http,
            http.watch(CONFIG_MAPS, allowWatchBookmarks="true", resourceVersion=server.resource_version) as watch,
        ):
            put_config_maps(server, "a")

            assert [(await watch.summary())[0] for _ in range(3)] == ["ADDED", "BOOKMARK", "BOOKMARK"]

    async def test_a_watch_ends_after_its_timeout(self, http: PlainHttp) -> None:
        async with http.watch(CONFIG_MAPS, timeoutSeconds="1") as watch:
            assert await watch.next() == {}

    async def test_a_watch_without_a_timeout_has_that_of_the_server(self) -> None:
        fake = FakeKubeServer(watch_timeout=timedelta(milliseconds=10))
        async with fake as server, plain_http(server.url) as http, http.watch(CONFIG_MAPS) as watch:
            assert await watch.next() == {}

    async def test_a_test_can_close_watches(self, server: FakeKubeServer, http: PlainHttp) -> None:
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            server.close_watches()

            assert await watch.next() == {}
        assert server.open_watches == 0

    async def test_a_test_can_expire_open_watches(self, server: FakeKubeServer, http: PlainHttp) -> None:
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            server.expire_watches()

            event = await watch.next()

            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert await watch.next() == {}

    async def test_a_watch_that_a_client_leaves_ends(self, server: FakeKubeServer, http: PlainHttp) -> None:
        async with http.watch(CONFIG_MAPS) as watch:
            put_config_maps(server, "a")
            await watch.next()
            assert server.open_watches == 1

        async with http.watch(CONFIG_MAPS, timeoutSeconds="1") as second:
            await second.next()
            await second.next()
        assert server.open_watches == 0
