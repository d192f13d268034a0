"""What the client sends, and how it reads objects and lists."""

from __future__ import annotations

import asyncio

import pytest

from sentinel.core.json import Json
from sentinel.drivers.kube.client import KubeClient
from sentinel.ports.kube import InvalidObject, KubeKind, KubeUnavailable, ListChunk, ResourceExpired
from tests.drivers.kube.api_server import ApiServer, Exchange, in_turn, reply, reply_error
from tests.drivers.kube.conftest import MakeClient
from tests.drivers.kube.kinds import CONFIG, CONFIG_MAP, NAMESPACE

BODY: dict[str, Json] = {"metadata": {"name": "east"}, "spec": {"pollInterval": "5s"}}


async def read_list(client: KubeClient, kind: KubeKind, **options: str | int) -> list[ListChunk]:
    return [chunk async for chunk in client.list(kind, **options)]  # type: ignore[arg-type]  # a test's options


class TestPaths:
    @pytest.mark.parametrize(
        ("kind", "namespace", "path"),
        [
            (CONFIG_MAP, "blue", "/api/v1/namespaces/blue/configmaps/east"),
            (CONFIG, "blue", "/apis/hyperfleet.redhat.com/v1alpha1/namespaces/blue/sentinelconfigs/east"),
            (NAMESPACE, "", "/api/v1/namespaces/east"),
        ],
    )
    async def test_the_path_follows_from_kind_namespace_and_name(
        self, server: ApiServer, client: KubeClient, kind: KubeKind, namespace: str, path: str
    ) -> None:
        await client.get(kind, "east", namespace=namespace)

        assert server.lines == [f"GET {path}"]

    @pytest.mark.parametrize("name", ["", "..", "a/b", "a\nb"])
    async def test_a_name_that_would_change_the_path_is_invalid(
        self, server: ApiServer, client: KubeClient, name: str
    ) -> None:
        with pytest.raises(InvalidObject, match="expected one segment of a URL"):
            await client.delete(CONFIG, name, namespace="blue")

        assert server.calls == []

    async def test_the_path_of_the_server_is_kept(self, server: ApiServer, make_client: MakeClient) -> None:
        server.url = f"{server.url}/k8s/clusters/c-1"

        await make_client().get(NAMESPACE, "east")

        assert server.lines == ["GET /k8s/clusters/c-1/api/v1/namespaces/east"]


class TestCalls:
    async def test_every_call_says_who_calls_and_what_it_accepts(
        self, server: ApiServer, make_client: MakeClient
    ) -> None:
        server.script = reply({"kind": "ConfigMap"})

        found = await make_client(token="a-token").get(CONFIG_MAP, "east", namespace="blue")

        [call] = server.calls
        assert found == {"kind": "ConfigMap"}
        assert call.headers["user-agent"] == "hyperfleet-sentinel/1.2.3"
        assert call.headers["accept"] == "application/json"
        assert call.token == "Bearer a-token"
        assert "content-type" not in call.headers

    @pytest.mark.parametrize(("is_dry_run", "query"), [(False, ""), (True, "&dryRun=All")])
    async def test_create_posts_and_refuses_unknown_fields(
        self, server: ApiServer, client: KubeClient, is_dry_run: bool, query: str
    ) -> None:
        server.script = reply(BODY, status=201)

        made = await client.create(CONFIG_MAP, BODY, namespace="blue", is_dry_run=is_dry_run)

        [call] = server.calls
        assert made == BODY
        assert call.line == f"POST /api/v1/namespaces/blue/configmaps?fieldValidation=Strict{query}"
        assert (call.headers["content-type"], call.json) == ("application/json", BODY)

    async def test_replace_puts_the_object_of_that_name(self, server: ApiServer, client: KubeClient) -> None:
        await client.replace(CONFIG_MAP, BODY, namespace="blue")
        await client.replace(CONFIG_MAP, BODY, namespace="blue", subresource="status")

        path = "PUT /api/v1/namespaces/blue/configmaps/east"
        assert server.lines == [path, f"{path}/status"]
        assert server.calls[0].json == BODY

    async def test_apply_patches_as_a_field_manager(self, server: ApiServer, client: KubeClient) -> None:
        await client.apply(CONFIG_MAP, BODY, namespace="blue", field_manager="sentinel")
        await client.apply(
            CONFIG_MAP,
            BODY,
            namespace="blue",
            field_manager="sentinel",
            subresource="status",
            is_forced=True,
            is_dry_run=True,
        )

        path = "PATCH /api/v1/namespaces/blue/configmaps/east"
        query = "fieldManager=sentinel&fieldValidation=Strict"
        assert server.lines == [f"{path}?{query}", f"{path}/status?{query}&force=true&dryRun=All"]
        assert server.calls[0].headers["content-type"] == "application/apply-patch+yaml"
        assert server.calls[0].json == BODY

    async def test_patches_have_their_own_content_types(self, server: ApiServer, client: KubeClient) -> None:
        await client.merge_patch(CONFIG_MAP, "east", {"a": None}, namespace="blue", subresource="status")
        await client.json_patch(
            CONFIG_MAP, "east", [{"op": "remove", "path": "/a"}], namespace="blue", field_manager="me"
        )

        [merge, json] = server.calls
        path = "PATCH /api/v1/namespaces/blue/configmaps/east"
        assert (merge.line, json.line) == (f"{path}/status", f"{path}?fieldManager=me")
        assert (merge.headers["content-type"], merge.json) == ("application/merge-patch+json", {"a": None})
        assert json.headers["content-type"] == "application/json-patch+json"
        assert json.json == [{"op": "remove", "path": "/a"}]

    async def test_delete_runs_in_the_background_with_preconditions(
        self, server: ApiServer, client: KubeClient
    ) -> None:
        await client.delete(CONFIG_MAP, "east", namespace="blue", uid="u-1", resource_version="7")
        await client.delete(CONFIG_MAP, "east", namespace="blue")

        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        assert server.lines == ["DELETE /api/v1/namespaces/blue/configmaps/east"] * 2
        assert [call.json for call in server.calls] == [
            {**options, "preconditions": {"uid": "u-1", "resourceVersion": "7"}},
            {**options, "preconditions": {}},
        ]

    async def test_concurrent_calls_share_few_connections(self, server: ApiServer, client: KubeClient) -> None:
        await asyncio.gather(*(client.get(NAMESPACE, f"n-{number}") for number in range(100)))

        assert len(server.calls) == 100
        assert server.connections <= 20

    async def test_a_closed_client_may_be_closed_again(self, client: KubeClient) -> None:
        await client.get(NAMESPACE, "east")

        await client.close()
        await client.close()


class TestLists:
    async def test_a_list_is_read_in_chunks(self, server: ApiServer, client: KubeClient) -> None:
        server.script = in_turn(
            reply({"metadata": {"resourceVersion": "9", "continue": "a/b+c"}, "items": [{"spec": 1}]}),
            reply({"metadata": {"resourceVersion": "9"}, "items": [{"kind": "Own", "apiVersion": "own/v1"}]}),
        )

        chunks = await read_list(client, CONFIG, namespace="blue", label_selector="a in (b,c)", chunk_size=1)

        path = "GET /apis/hyperfleet.redhat.com/v1alpha1/namespaces/blue/sentinelconfigs"
        query = "labelSelector=a%20in%20%28b,c%29&limit=1"
        assert server.lines == [f"{path}?{query}", f"{path}?{query}&continue=a%2Fb%2Bc"]
        named: dict[str, Json] = {
            "spec": 1,
            "apiVersion": "hyperfleet.redhat.com/v1alpha1",
            "kind": "SentinelConfig",
        }
        assert chunks == [
            ListChunk([named], "9"),
            ListChunk([{"kind": "Own", "apiVersion": "own/v1"}], "9"),
        ]

    @pytest.mark.parametrize("items", [[], None])
    async def test_an_empty_list_is_one_empty_chunk(
        self, server: ApiServer, client: KubeClient, items: object
    ) -> None:
        server.script = reply({"metadata": {"resourceVersion": "3", "continue": ""}, "items": items})

        assert await read_list(client, NAMESPACE, field_selector="metadata.name=x") == [ListChunk([], "3")]
        assert server.lines == ["GET /api/v1/namespaces?fieldSelector=metadata.name=x&limit=500"]

    async def test_an_expired_continue_token_ends_the_list(self, server: ApiServer, client: KubeClient) -> None:
        expired = reply_error(410, "Expired", "The provided continue parameter is too old")
        server.script = in_turn(reply({"metadata": {"continue": "x"}, "items": []}), expired)

        with pytest.raises(ResourceExpired, match="continue parameter is too old"):
            await read_list(client, CONFIG_MAP)

        assert len(server.calls) == 2

    async def test_chunks_are_requested_one_by_one(self, server: ApiServer, client: KubeClient) -> None:
        server.script = reply({"metadata": {"continue": "more"}, "items": []})
        chunks = client.list(CONFIG_MAP)

        await anext(chunks)
        await chunks.aclose()

        assert len(server.calls) == 1


class TestMalformedResponses:
    @pytest.mark.parametrize("body", [b"<html>login</html>", b"[1]", b'"text"', b""])
    async def test_a_response_that_is_not_of_the_api_is_unavailable(
        self, server: ApiServer, client: KubeClient, body: bytes
    ) -> None:
        server.script = reply(body=body)

        with pytest.raises(KubeUnavailable, match=f"^{server.url}: expected an object, got something else"):
            await client.get(NAMESPACE, "east")
        with pytest.raises(KubeUnavailable, match="expected a list of namespaces, got something else"):
            await read_list(client, NAMESPACE)

    async def test_an_endless_response_is_cut_off(self, server: ApiServer, client: KubeClient) -> None:
        async def script(exchange: Exchange) -> None:
            await exchange.begin_stream()
            while True:
                await exchange.send_chunk(bytes(4 * 1024 * 1024))

        server.script = script

        with pytest.raises(KubeUnavailable, match="expected a response of at most 67108864 bytes, got more"):
            await client.get(NAMESPACE, "east")
