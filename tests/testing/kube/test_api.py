"""The fake API server over plain HTTP: paths, parameters, bodies, and what the contract suite does not reach."""

from __future__ import annotations

from typing import Any

import pytest

from sentinel.core.json import Json
from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.testing.kube import ApiError, FakeKubeServer
from sentinel.testing.kube.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, NAMESPACE
from tests.support.kube.objects import config_map, owners, put_config_maps
from tests.support.kube.patch_types import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.support.kube.plain_http import CONFIG_MAPS, PlainHttp, plain_http
from tests.support.kube.widgets import WIDGET, WIDGET_DEFINITION, widget

WIDGETS = "/apis/contract.example.com/v1/namespaces/default/widgets"
GADGET = KubeKind("example.com", "v1", "Gadget", "gadgets", is_namespaced=False)


class TestPaths:
    async def test_clients_can_discover_what_is_served(self, http: PlainHttp) -> None:
        core = await http.call("GET", "/api/v1")
        groups = await http.call("GET", "/apis")
        group = await http.call("GET", "/apis/apps")
        apps = await http.call("GET", "/apis/apps/v1")

        assert {"configmaps", "pods", "pods/status", "namespaces"} <= {
            each["name"] for each in core.body["resources"]
        }
        assert {"apps", "batch", "coordination.k8s.io"} <= {each["name"] for each in groups.body["groups"]}
        assert group.body["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
        assert apps.body["resources"][0]["kind"] == "StatefulSet"

    async def test_the_server_is_healthy_and_has_a_version(self, http: PlainHttp) -> None:
        assert (await http.call("GET", "/readyz")).body == "ok"
        assert (await http.call("GET", "/version")).body["minor"] == "36"
        assert (await http.call("GET", "/api")).body["versions"] == ["v1"]

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/nothing", 404),
            ("GET", "/apis/example.com", 404),
            ("GET", "/apis/example.com/v1", 404),
            ("GET", "/api/v1/gadgets", 404),
            ("GET", f"{CONFIG_MAPS}/a/status", 404),
            ("GET", f"{CONFIG_MAPS}/a/b/c", 404),
            ("GET", "/api/v1/namespaces/default/namespaces/x", 404),
            ("POST", "/version", 405),
            ("POST", "/api/v1/configmaps", 405),
            ("DELETE", "/api/v1/configmaps", 405),
            ("PUT", CONFIG_MAPS, 405),
            ("POST", f"{CONFIG_MAPS}/a", 405),
        ],
    )
    async def test_other_paths_and_methods_are_errors(
        self, http: PlainHttp, method: str, path: str, status: int
    ) -> None:
        response = await http.call(method, path, {"metadata": {"name": "a"}} if method != "GET" else None)

        assert response.status == status
        assert (response.body["kind"], response.body["code"]) == ("Status", status)

    async def test_a_namespace_is_an_object(self, http: PlainHttp) -> None:
        found = await http.call("GET", "/api/v1/namespaces/default")

        assert found.body["status"] == {"phase": "Active"}
        assert found.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}


class TestBodies:
    @pytest.mark.parametrize(
        ("method", "content_type"),
        [
            ("POST", "application/yaml"),
            ("PUT", "application/vnd.kubernetes.protobuf"),
            ("PATCH", STRATEGIC_MERGE_PATCH),
            ("PATCH", "application/json"),
        ],
    )
    async def test_other_content_types_are_unsupported(
        self, server: FakeKubeServer, http: PlainHttp, method: str, content_type: str
    ) -> None:
        put_config_maps(server, "a")
        path = CONFIG_MAPS if method == "POST" else f"{CONFIG_MAPS}/a"

        response = await http.call(method, path, config_map("a"), content_type=content_type)

        assert (response.status, response.body["reason"]) == (415, "UnsupportedMediaType")

    @pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"metadata": 1}', b'{"metadata": {"name": 1}}'])
    async def test_a_body_that_is_not_an_object_is_a_bad_request(self, http: PlainHttp, body: bytes) -> None:
        response = await http.call("POST", CONFIG_MAPS, body)

        assert (response.status, response.body["reason"]) == (400, "BadRequest")

    @pytest.mark.parametrize(
        ("content_type", "query", "field"),
        [
            (APPLY, {}, "fieldManager"),
            (MERGE_PATCH, {"force": "true"}, "force"),
            (MERGE_PATCH, {"dryRun": "Some"}, "dryRun"),
        ],
    )
    async def test_a_wrong_option_is_invalid(
        self, server: FakeKubeServer, http: PlainHttp, content_type: str, query: dict[str, str], field: str
    ) -> None:
        put_config_maps(server, "a")

        response = await http.call(
            "PATCH", f"{CONFIG_MAPS}/a", config_map("a"), content_type=content_type, **query
        )

        assert response.status == 422
        assert [cause["field"] for cause in response.body["details"]["causes"]] == [field]

    async def test_a_created_object_is_201_and_an_applied_one_too(self, http: PlainHttp) -> None:
        created = await http.call("POST", CONFIG_MAPS, config_map("a"))
        applied = await http.call(
            "PATCH", f"{CONFIG_MAPS}/b", config_map("b", x="1"), content_type=APPLY, fieldManager="m"
        )
        again = await http.call(
            "PATCH", f"{CONFIG_MAPS}/b", config_map("b", x="1"), content_type=APPLY, fieldManager="m"
        )

        assert (created.status, applied.status, again.status) == (201, 201, 200)
        assert owners(created.body) == {}

    async def test_the_manager_is_the_first_part_of_the_user_agent(self, http: PlainHttp) -> None:
        created = await http.call("POST", CONFIG_MAPS, config_map("a", x="1"))

        assert owners(created.body) == {"curl Update": {"f:data": {".": {}, "f:x": {}}}}

    async def test_a_list_without_keys_has_no_owners(self, http: PlainHttp) -> None:
        body: Json = {"metadata": {"name": "a"}, "spec": {"containers": [{"image": "x"}]}}

        created = await http.call("POST", "/api/v1/namespaces/default/pods", body)

        assert created.status == 201
        assert owners(created.body) == {}

    async def test_managed_fields_can_be_reset(self, http: PlainHttp) -> None:
        created = await http.call("POST", CONFIG_MAPS, config_map("a", x="1"))
        created.body["metadata"]["managedFields"] = [{}]

        reset = await http.call("PUT", f"{CONFIG_MAPS}/a", created.body)
        patched = await http.call("PATCH", f"{CONFIG_MAPS}/a", {"data": {"x": "2"}}, content_type=MERGE_PATCH)
        applied = await http.call(
            "PATCH", f"{CONFIG_MAPS}/a", config_map("a", y="1"), content_type=APPLY, fieldManager="m"
        )

        assert owners(reset.body) == owners(patched.body) == {}
        assert set(owners(applied.body)) == {"m Apply", "before-first-apply Update"}

    async def test_a_dry_run_stores_nothing(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")
        version = server.resource_version

        await http.call("POST", CONFIG_MAPS, config_map("b"), dryRun="All")
        await http.call("PUT", f"{CONFIG_MAPS}/a", config_map("a", x="1"), dryRun="All")
        await http.call("DELETE", f"{CONFIG_MAPS}/a", dryRun="All")

        assert server.resource_version == version

    async def test_a_deletion_is_described(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")

        response = await http.call("DELETE", f"{CONFIG_MAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1"})

        assert (response.status, response.body["status"]) == (200, "Success")
        assert response.body["details"]["name"] == "a"

    async def test_a_collection_can_be_deleted(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a", "b")

        await http.call("DELETE", CONFIG_MAPS, fieldSelector="metadata.name=a")

        assert [each["metadata"] for each in server.objects(CONFIG_MAP)] == [
            server.get(CONFIG_MAP, "b", namespace="default")["metadata"]
        ]

    async def test_a_uid_is_immutable(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")

        response = await http.call(
            "PATCH", f"{CONFIG_MAPS}/a", {"metadata": {"uid": "other"}}, content_type=MERGE_PATCH
        )

        assert response.status == 422
        assert response.body["details"]["causes"][0]["field"] == "metadata.uid"

    async def test_a_patch_cannot_rename(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")
        rename: list[Json] = [{"op": "replace", "path": "/metadata/name", "value": "b"}]

        response = await http.call("PATCH", f"{CONFIG_MAPS}/a", rename, content_type=JSON_PATCH)

        assert response.status == 400
        assert "does not match the name on the URL" in response.body["message"]


class TestLists:
    async def test_a_chunk_says_how_to_go_on(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a", "b", "c")

        first = await http.call("GET", CONFIG_MAPS, limit="2")
        token = first.body["metadata"]["continue"]
        second = await http.call("GET", CONFIG_MAPS, **{"limit": "2", "continue": token})

        assert first.body["metadata"]["remainingItemCount"] == 1
        assert "kind" not in first.body["items"][0]
        assert [each["metadata"]["name"] for each in second.body["items"]] == ["c"]
        assert "continue" not in second.body["metadata"]

    async def test_an_expired_list_can_go_on_inconsistently(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a", "b")
        first = await http.call("GET", CONFIG_MAPS, limit="1")
        put_config_maps(server, "c")
        server.expire_versions()

        expired = await http.call("GET", CONFIG_MAPS, **{"continue": first.body["metadata"]["continue"]})
        fresh = await http.call("GET", CONFIG_MAPS, **{"continue": expired.body["metadata"]["continue"]})

        assert (expired.status, expired.body["reason"]) == (410, "Expired")
        assert [each["metadata"]["name"] for each in fresh.body["items"]] == ["b", "c"]

    async def test_a_list_may_be_as_of_a_version(self, server: FakeKubeServer, http: PlainHttp) -> None:
        put_config_maps(server, "a")
        old = server.resource_version
        put_config_maps(server, "b")

        async def names(**query: str) -> list[str]:
            response = await http.call("GET", CONFIG_MAPS, **query)
            return [each["metadata"]["name"] for each in response.body["items"]]

        assert await names(resourceVersion=old, resourceVersionMatch="Exact") == ["a"]
        assert await names(resourceVersion=old, resourceVersionMatch="NotOlderThan") == ["a", "b"]
        assert await names(resourceVersion=old) == ["a", "b"]
        assert await names(resourceVersion=old, limit="5") == ["a"]
        assert await names(resourceVersion="0") == ["a", "b"]

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({"resourceVersion": "x"}, 400),
            ({"limit": "-1"}, 400),
            ({"continue": "x"}, 400),
            ({"continue": "eA==", "resourceVersion": "1"}, 400),
            ({"resourceVersionMatch": "Exact"}, 422),
            ({"resourceVersion": "1", "resourceVersionMatch": "Exact"}, 410),
            ({"resourceVersion": "999999"}, 504),
        ],
    )
    async def test_a_wrong_version_is_an_error(
        self, server: FakeKubeServer, http: PlainHttp, query: dict[str, str], status: int
    ) -> None:
        server.expire_versions()

        response = await http.call("GET", CONFIG_MAPS, **query)

        assert (response.status, response.body["code"]) == (status, status)

    async def test_a_version_in_the_future_asks_to_retry(self, http: PlainHttp) -> None:
        response = await http.call("GET", CONFIG_MAPS, resourceVersion="999999")

        assert response.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert response.headers["Retry-After"] == "1"

    async def test_history_is_bounded(self) -> None:
        async with FakeKubeServer(max_history=10) as server, plain_http(server.url) as http:
            start = server.resource_version
            put_config_maps(server, *(f"c{number}" for number in range(30)))

            response = await http.call("GET", CONFIG_MAPS, resourceVersion=start, resourceVersionMatch="Exact")
            async with http.watch(CONFIG_MAPS, resourceVersion=start) as watch:
                event = await watch.next()

        assert response.status == 410
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


class TestDefinitions:
    async def test_a_definition_serves_its_kind_at_once(self, http: PlainHttp) -> None:
        before = await http.call("GET", WIDGETS)
        defined = await http.call(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGET_DEFINITION
        )
        created = await http.call("POST", WIDGETS, widget("a"))

        assert before.status == 404
        conditions = {each["type"]: each["status"] for each in defined.body["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert defined.body["status"]["storedVersions"] == ["v1"]
        assert created.body["spec"] == {"size": 1, "color": "red"}

    async def test_a_deleted_definition_takes_its_objects_along(
        self, server: FakeKubeServer, http: PlainHttp
    ) -> None:
        server.create(CUSTOM_RESOURCE_DEFINITION, WIDGET_DEFINITION)
        await http.call("POST", WIDGETS, widget("a"))

        server.delete(CUSTOM_RESOURCE_DEFINITION, str(WIDGET))
        gone = await http.call("GET", WIDGETS)
        server.create(CUSTOM_RESOURCE_DEFINITION, WIDGET_DEFINITION)

        assert gone.status == 404
        assert server.objects(WIDGET) == []

    async def test_versions_of_a_kind_share_their_objects(self, server: FakeKubeServer, http: PlainHttp) -> None:
        definition: dict[str, Any] = {**WIDGET_DEFINITION}
        versions = definition["spec"]["versions"]
        newer = {**versions[0], "name": "v2", "storage": False}
        definition["spec"] = {**definition["spec"], "versions": [*versions, newer]}
        server.create(CUSTOM_RESOURCE_DEFINITION, definition)
        await http.call("POST", WIDGETS, widget("a"))

        found = await http.call("GET", f"{WIDGETS.replace('/v1/', '/v2/')}/a")
        listed = await http.call("GET", WIDGETS.replace("/v1/", "/v2/"))

        assert found.body["apiVersion"] == "contract.example.com/v2"
        assert [each["apiVersion"] for each in listed.body["items"]] == ["contract.example.com/v2"]

    async def test_an_unknown_field_is_a_warning(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.create(CUSTOM_RESOURCE_DEFINITION, WIDGET_DEFINITION)

        created = await http.call("POST", WIDGETS, widget("a", unknown=1))

        assert created.status == 201
        assert created.headers["Warning"] == '299 - "unknown field \\"spec.unknown\\""'

    async def test_an_unknown_field_cannot_be_applied(self, server: FakeKubeServer, http: PlainHttp) -> None:
        server.create(CUSTOM_RESOURCE_DEFINITION, WIDGET_DEFINITION)

        response = await http.call(
            "PATCH", f"{WIDGETS}/a", widget("a", unknown=1), content_type=APPLY, fieldManager="m"
        )

        assert response.status == 500
        assert ".spec.unknown: field not declared in schema" in response.body["message"]

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"names": {"plural": "widgets"}}, "spec.names.kind"),
            ({"group": "other.example.com"}, "metadata.name"),
            ({"versions": [{"name": "v1", "served": True}]}, "spec.versions[0].schema.openAPIV3Schema"),
        ],
    )
    async def test_an_incomplete_definition_is_invalid(
        self, server: FakeKubeServer, change: dict[str, Any], field: str
    ) -> None:
        definition: dict[str, Any] = {**WIDGET_DEFINITION}
        definition["spec"] = {**definition["spec"], **change}

        with pytest.raises(ApiError) as caught:
            server.create(CUSTOM_RESOURCE_DEFINITION, definition)

        assert [cause.field for cause in caught.value.causes] == [field]

    async def test_a_kind_can_be_registered_without_a_definition(
        self, server: FakeKubeServer, http: PlainHttp
    ) -> None:
        server.register(GADGET, has_status=True)
        body: KubeObject = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}}

        created = await http.call(
            "POST", "/apis/example.com/v1/gadgets", {**body, "spec": {"any": [1]}, "status": {"x": 1}}
        )
        patched = server.merge_patch(GADGET, "a", {"status": {"x": 1}}, subresource="status")

        assert (created.body["spec"], created.body.get("status")) == ({"any": [1]}, None)
        assert patched["status"] == {"x": 1}


class TestNamespaces:
    async def test_a_deleted_namespace_waits_for_its_finalizer(
        self, server: FakeKubeServer, http: PlainHttp
    ) -> None:
        path = "/api/v1/namespaces/default"
        deleted = await http.call("DELETE", path)
        created = await http.call("POST", CONFIG_MAPS, config_map("a"))
        finalized = await http.call("PUT", f"{path}/finalize", {**deleted.body, "spec": {"finalizers": []}})

        assert deleted.body["status"]["phase"] == "Terminating"
        assert (created.status, created.body["reason"]) == (403, "Forbidden")
        assert "because it is being terminated" in created.body["message"]
        assert finalized.status == 200
        assert [each["metadata"] for each in server.objects(NAMESPACE)] == [
            server.get(NAMESPACE, name)["metadata"] for name in ("kube-node-lease", "kube-public", "kube-system")
        ]
