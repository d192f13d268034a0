"""The CRD on a real API server: it installs, refuses mistakes at their field, and shows what the operator says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.operator.status import ConditionType, ConfigStatus, StatusReason
from sentinel.operator import manifests
from tests.kube.crds import API_PATH, CRD_PATH, apply_crd, install_crd, read_crd, sentinel_configs
from tests.operator.resources import RABBITMQ, REMOVED, make_object, valid_specs
from tests.support.kube.patch_types import APPLY
from tests.support.structural_schema import errors
from tools.services.kube_apiserver import KubeClient, KubeResponse

pytestmark = pytest.mark.usefixtures("sentinel_config_crd")

SCHEMA = read_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
DURATIONS = ("backoffNotReady", "backoffReady", "pollInterval", "hyperfleetAPI.timeout", "republishInterval")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SECRET_REFERENCES = {"hyperfleetAPI.tokenSecretRef.name": "a", "broker.credentialsSecretRef.name": "a"}

Changes = dict[str, Any]

on_the_server = hypothesis_settings(max_examples=60, deadline=None)


def create(admin: KubeClient, document: dict[str, Any], *, field_validation: str = "Strict") -> KubeResponse:
    """Send a SentinelConfig to the server, which validates it and does not keep it."""
    document = {**document, "metadata": {**document["metadata"], "namespace": "default"}}
    query = f"dryRun=All&fieldValidation={field_validation}"
    return admin.send("POST", f"{sentinel_configs('default')}?{query}", document)


def causes(response: KubeResponse) -> dict[str, str]:
    """Return the problems of a refused object by field."""
    found = response.body["details"]["causes"]
    # <nil> stands for the whole object: that rules in CEL were not evaluated, because of the other problems.
    return {each["field"]: each["message"] for each in found if each["field"] != "<nil>"}


def wrong_types(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield each field below a schema with a value of another type."""
    for key, field in schema.get("properties", {}).items():
        yield f"{path}{key}", 1 if field["type"] == "string" else "text"
        yield from wrong_types(field, f"{path}{key}.")


class TestDefinition:
    def test_it_is_established_without_warnings(self, kube_admin: KubeClient) -> None:
        response = apply_crd(kube_admin)

        conditions = {each["type"]: each["status"] for each in kube_admin.get(CRD_PATH)["status"]["conditions"]}
        assert response.warnings == ()
        assert conditions == {"NamesAccepted": "True", "Established": "True"}

    def test_applying_it_again_changes_nothing(self, kube_admin: KubeClient) -> None:
        before = kube_admin.get(CRD_PATH)["metadata"]["resourceVersion"]

        install_crd(kube_admin)

        assert kube_admin.get(CRD_PATH)["metadata"]["resourceVersion"] == before

    def test_the_server_stores_every_field_of_it_as_written(self, kube_admin: KubeClient) -> None:
        (stored,) = kube_admin.get(CRD_PATH)["spec"]["versions"]

        assert stored["schema"]["openAPIV3Schema"] == SCHEMA

    def test_discovery_has_its_names(self, kube_admin: KubeClient) -> None:
        resources = {each["name"]: each for each in kube_admin.get(API_PATH)["resources"]}

        found = resources["sentinelconfigs"]
        assert resources.keys() == {"sentinelconfigs", "sentinelconfigs/status"}
        assert (found["kind"], found["singularName"], found["namespaced"]) == (
            "SentinelConfig",
            "sentinelconfig",
            True,
        )
        assert found["shortNames"] == ["sc"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"resourceType": REMOVED}, "resourceType"),
            ({"resourceType": None}, "resourceType"),
            ({"resourceType": ""}, "resourceType"),
            ({"resourceType": "workloads"}, "resourceType"),
            ({"hyperfleetAPI": REMOVED}, "hyperfleetAPI"),
            ({"hyperfleetAPI.url": REMOVED}, "hyperfleetAPI.url"),
            ({"hyperfleetAPI.tokenSecretRef": {}}, "hyperfleetAPI.tokenSecretRef.name"),
            ({"broker": REMOVED}, "broker"),
            ({"broker.type": REMOVED}, "broker.type"),
            ({"broker.type": "kafka"}, "broker.type"),
            ({"broker.topic": REMOVED}, "broker.topic"),
            ({"broker.projectID": REMOVED}, "broker.projectID"),
            ({"broker.projectID": ""}, "broker.projectID"),
            ({"broker": {"type": "rabbitmq", "topic": "t"}}, "broker.url"),
            ({"broker": {**RABBITMQ, "url": ""}}, "broker.url"),
            ({"broker.credentialsSecretRef": {}}, "broker.credentialsSecretRef.name"),
            ({"pageSize": 0}, "pageSize"),
            ({"pageSize": 1001}, "pageSize"),
            ({"pageSize": 1.5}, "pageSize"),
            ({"maxEventsPerSecond": 0}, "maxEventsPerSecond"),
            ({"maxEventsPerSecond": -1}, "maxEventsPerSecond"),
            ({"maxEventsPerSecond": 1_000_001}, "maxEventsPerSecond"),
            ({"messageDataTypes": "json"}, "messageDataTypes"),
            ({"selectorParam": "q"}, "selectorParam"),
            ({"shardSelector": {"matchLabels": {"a": 1}}}, "shardSelector.matchLabels.a"),
            *(
                ({"shardSelector": {"matchExpressions": [expression]}}, f"shardSelector.matchExpressions[0].{key}")
                for expression, key in (
                    ({"operator": "Exists"}, "key"),
                    ({"key": "a"}, "operator"),
                    ({"key": "a", "operator": "in", "values": ["b"]}, "operator"),
                    ({"key": "a", "operator": "Gt", "values": ["1"]}, "operator"),
                    ({"key": "a", "operator": "In", "values": "b"}, "values"),
                    ({"key": "a", "operator": "In", "values": [1]}, "values[0]"),
                )
            ),
        ],
    )
    def test_a_bad_field_is_refused(self, kube_admin: KubeClient, changes: Changes, field: str) -> None:
        document = make_object(changes)

        response = create(kube_admin, document)

        assert response.status == 422
        assert causes(response).keys() == {f"spec.{field}"}
        # `sentinel check` refuses it without a server.
        assert all(each.field.startswith(f"spec.{field}") for each in manifests.read_object(document).problems)
        assert manifests.read_object(document).settings is None

    @pytest.mark.parametrize("field", DURATIONS)
    @pytest.mark.parametrize("text", ["5", "often", "", "1d", "5 s", "-1s", "8761h"])
    def test_a_bad_duration_is_refused(self, kube_admin: KubeClient, field: str, text: str) -> None:
        response = create(kube_admin, make_object({field: text}))

        assert response.status == 422
        assert "expected a duration such as 5s, " in causes(response)[f"spec.{field}"]

    @pytest.mark.parametrize(
        ("field", "text"),
        [*((field, "0s") for field in DURATIONS if field != "republishInterval"), ("pollInterval", "99ms")],
    )
    def test_a_duration_that_is_too_short_is_refused(self, kube_admin: KubeClient, field: str, text: str) -> None:
        response = create(kube_admin, make_object({field: text}))

        assert response.status == 422
        assert f'Invalid value: "{text}": expected a duration such as 5s, ' in causes(response)[f"spec.{field}"]

    @pytest.mark.parametrize(("field", "value"), [*wrong_types(SCHEMA["properties"]["spec"])])
    def test_a_wrong_type_is_refused(self, kube_admin: KubeClient, field: str, value: Json) -> None:
        response = create(kube_admin, make_object({**SECRET_REFERENCES, field: value}))

        assert response.status == 422
        assert causes(response).keys() == {f"spec.{field}"}

    def test_an_object_without_a_spec_is_refused(self, kube_admin: KubeClient) -> None:
        document = make_object()
        del document["spec"]

        response = create(kube_admin, document)

        assert response.status == 422
        assert causes(response).keys() == {"spec"}

    @pytest.mark.parametrize("field", ["pollIntervall", "hyperfleetApi", "broker.projectId"])
    def test_an_unknown_field_is_refused(self, kube_admin: KubeClient, field: str) -> None:
        response = create(kube_admin, make_object({field: "5s"}))

        assert response.status == 400
        assert f'unknown field "spec.{field}"' in response.body["message"]

    def test_an_unknown_field_is_dropped_if_it_is_not_validated(self, kube_admin: KubeClient) -> None:
        response = create(kube_admin, make_object({"extra": 1}), field_validation="Warn")

        assert response.status == 201
        assert response.warnings == ('unknown field "spec.extra"',)
        assert "extra" not in response.body["spec"]

    def test_a_bad_edit_is_refused_and_changes_nothing(self, kube_admin: KubeClient, namespace: str) -> None:
        path = f"{sentinel_configs(namespace)}/us-east"
        stored = kube_admin.create(sentinel_configs(namespace), make_object(namespace=namespace))

        replaced = kube_admin.send("PUT", path, {**stored, "spec": {**stored["spec"], "backoffReady": "often"}})
        applied = kube_admin.send(
            "PATCH",
            f"{path}?fieldManager=test&force=true",
            make_object({"broker.type": "rabbitmq"}, namespace=namespace),
            content_type=APPLY,
        )

        assert [replaced.status, applied.status] == [422, 422]
        assert causes(replaced).keys() == {"spec.backoffReady"}
        assert causes(applied).keys() == {"spec.broker.url"}
        assert kube_admin.get(path) == stored


class TestAcceptance:
    """What the server accepts, our reader accepts, except what only it can know."""

    def test_defaults_appear(self, kube_admin: KubeClient) -> None:
        response = create(kube_admin, make_object({"hyperfleetAPI.tokenSecretRef": {"name": "a"}}))

        written = make_object()["spec"]
        assert response.body["spec"] == {
            **written,
            "backoffNotReady": "10s",
            "backoffReady": "30m",
            "hyperfleetAPI": {
                **written["hyperfleetAPI"],
                "timeout": "10s",
                "tokenSecretRef": {"name": "a", "key": "token"},
                "watch": "auto",
            },
            "pollInterval": "5s",
            "messageDataTypes": "text",
            "selectorParam": "labels",
            "pageSize": 100,
            "generationCheck": True,
        }

    def test_message_data_is_kept_as_written(self, kube_admin: KubeClient) -> None:
        data = {"id": ".id", "nested": {"deeper": {"region": "{{.labels.region}}", "n": 1, "f": 1.5, "is": True}}}

        response = create(kube_admin, make_object({"messageData": data}))

        assert response.body["spec"]["messageData"] == data

    @pytest.mark.parametrize(
        "changes",
        [
            {"resourceType": "nodepools", "shardSelector": {}},
            {"broker": RABBITMQ},
            {"broker": {**RABBITMQ, "exchange": "e", "projectID": "unused", "topic": "has spaces"}},
            SECRET_REFERENCES,
            {"pollInterval": "100ms", "backoffNotReady": "1us", "backoffReady": "8760h"},
            {"pollInterval": "1h30m0.5s", "backoffNotReady": "+5s", "backoffReady": ".5h"},
            {"republishInterval": "0s"},
            {"republishInterval": "0"},
            {"republishInterval": None, "backoffReady": None, "messageData": None, "shardSelector": None},
            {"pageSize": 1, "maxEventsPerSecond": 0.001},
            {"pageSize": 1000, "maxEventsPerSecond": 1_000_000},
            {"generationCheck": False, "messageDataTypes": "native", "selectorParam": "search"},
            {
                "shardSelector": {
                    "matchLabels": {"app.kubernetes.io/name": ""},
                    "matchExpressions": [
                        {"key": "a", "operator": "In", "values": ["b", "c"]},
                        {"key": "a", "operator": "NotIn", "values": ["d"]},
                        {"key": "b", "operator": "Exists"},
                        {"key": "c", "operator": "DoesNotExist", "values": []},
                    ],
                }
            },
        ],
    )
    def test_what_the_server_accepts_is_read(self, kube_admin: KubeClient, changes: Changes) -> None:
        response = create(kube_admin, make_object(changes))

        assert response.status == 201, response.body
        assert manifests.read_object(response.body).problems == ()

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"hyperfleetAPI.url": ""}, "hyperfleetAPI.url"),
            ({"hyperfleetAPI.url": "ftp://h"}, "hyperfleetAPI.url"),
            ({"hyperfleetAPI.url": "http://user:password@h"}, "hyperfleetAPI.url"),
            ({"hyperfleetAPI.tokenSecretRef.name": "A"}, "hyperfleetAPI.tokenSecretRef.name"),
            ({"hyperfleetAPI.tokenSecretRef": {"name": "a", "key": "b/c"}}, "hyperfleetAPI.tokenSecretRef.key"),
            ({"broker.topic": ""}, "broker.topic"),
            ({"broker.topic": "has spaces"}, "broker.topic"),
            ({"broker.projectID": "a b"}, "broker.projectID"),
            ({"broker": {**RABBITMQ, "url": "http://h"}}, "broker.url"),
            ({"broker": {**RABBITMQ, "exchange": ""}}, "broker.exchange"),
            ({"broker.credentialsSecretRef.name": "A"}, "broker.credentialsSecretRef.name"),
            ({"backoffReady": "499ns"}, "backoffReady"),
            ({"messageData": {"a": "{{.id"}}, "messageData.a"),
            ({"messageData": {"a": ""}}, "messageData.a"),
            ({"messageData": {"a": [1]}}, "messageData.a"),
            ({"messageData": {"a": None}}, "messageData.a"),
            ({"shardSelector": {"matchLabels": {"-a": "b"}}}, "shardSelector.matchLabels.-a"),
            ({"shardSelector": {"matchLabels": {"a": "b c"}}}, "shardSelector.matchLabels.a"),
            (
                {"shardSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
                "shardSelector.matchExpressions[0].values",
            ),
            (
                {"shardSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
                "shardSelector.matchExpressions[0].values",
            ),
            (
                {
                    "selectorParam": "search",
                    "shardSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                },
                "shardSelector",
            ),
        ],
    )
    def test_what_only_the_reader_refuses_is_known(
        self, kube_admin: KubeClient, changes: Changes, field: str
    ) -> None:
        response = create(kube_admin, make_object(changes))

        assert response.status == 201, response.body
        (problem,) = manifests.read_object(response.body).problems
        assert problem.field == f"spec.{field}"

    @on_the_server
    @given(spec=valid_specs)
    def test_every_valid_spec_is_accepted_and_means_the_same(
        self, kube_admin: KubeClient, spec: dict[str, Json]
    ) -> None:
        document = make_object(namespace="default") | {"spec": spec}

        response = create(kube_admin, document)

        assert response.status == 201, response.body
        ours, theirs = (manifests.read_object(each).settings for each in (document, response.body))
        assert ours is not None
        assert theirs is not None
        assert theirs.spec == ours.spec

    @on_the_server
    @given(
        parts=st.lists(
            st.tuples(
                st.sampled_from(["0", "1", "99", "100", ".5", "1.", "1.5", ".", "8760", "8761", "-1", "+2", " 1"]),
                st.sampled_from(["us", "µs", "μs", "ms", "s", "m", "h", "", "d", "S"]),
            ),
            max_size=3,
        ),
        field=st.sampled_from(DURATIONS),
    )
    def test_durations_are_those_of_the_reader(
        self, kube_admin: KubeClient, parts: list[tuple[str, str]], field: str
    ) -> None:
        document = make_object({field: "".join(number + unit for number, unit in parts)})

        response = create(kube_admin, document)

        assert (response.status == 201) == (not manifests.read_object(document).problems), response.body

    @pytest.mark.parametrize(
        "changes",
        [
            {"backoffReady": "0s", "pollInterval": "99ms", "republishInterval": "-1s"},
            {"broker": {"type": "rabbitmq", "topic": 1}, "pageSize": 0},
            {"broker.projectID": REMOVED},
            {"resourceType": "x", "shardSelector": {"matchExpressions": [{}]}},
            {"backoffReady": "1" * 65},
        ],
    )
    def test_the_schema_of_the_other_tests_refuses_the_same(
        self, kube_admin: KubeClient, changes: Changes
    ) -> None:
        document = make_object(changes)

        response = create(kube_admin, document)

        ours = {each.partition(":")[0].removeprefix(".") for each in errors(SCHEMA, document)}
        assert causes(response).keys() == ours


class TestStoredConfig:
    NOW = datetime.now(UTC).replace(microsecond=0)
    """The server renders times as ages."""

    @pytest.fixture
    def path(self, kube_admin: KubeClient, namespace: str) -> str:
        """The path of a stored SentinelConfig."""
        kube_admin.create(sentinel_configs(namespace), make_object(namespace=namespace))
        return f"{sentinel_configs(namespace)}/us-east"

    @pytest.fixture
    def status(self) -> dict[str, Json]:
        """A status as the operator writes it."""
        observed = ConfigStatus().observed(1)
        for condition, reason, is_true in (
            (ConditionType.ACCEPTED, StatusReason.VALID, True),
            (ConditionType.RUNNING, StatusReason.POLLING, True),
            (ConditionType.DEGRADED, StatusReason.HEALTHY, False),
        ):
            observed = observed.with_condition(condition, reason, "", is_true=is_true, now=self.NOW)
        return observed.polled(at=self.NOW - timedelta(days=3, hours=1), resources=12, published=7).encode()

    def test_a_status_does_not_change_the_spec(
        self, kube_admin: KubeClient, path: str, status: dict[str, Json]
    ) -> None:
        stored = kube_admin.get(path)

        changed = kube_admin.merge_patch(
            f"{path}/status",
            {"status": status, "spec": {"pollInterval": "1m"}, "metadata": {"labels": {"a": "b"}}},
        )

        assert changed["status"] == status
        assert changed["spec"] == stored["spec"]
        assert "labels" not in changed["metadata"]
        assert changed["metadata"]["generation"] == 1

    def test_a_spec_does_not_change_the_status(
        self, kube_admin: KubeClient, path: str, status: dict[str, Json]
    ) -> None:
        kube_admin.merge_patch(f"{path}/status", {"status": status})

        changed = kube_admin.merge_patch(path, {"spec": {"pollInterval": "1m"}, "status": {"resources": 1}})

        assert changed["status"] == status
        assert changed["spec"]["pollInterval"] == "1m"
        assert changed["metadata"]["generation"] == 2

    def test_a_status_at_creation_is_dropped(
        self, kube_admin: KubeClient, namespace: str, status: dict[str, Json]
    ) -> None:
        document = make_object(namespace=namespace) | {"status": status}

        assert "status" not in kube_admin.create(sentinel_configs(namespace), document)

    def test_only_a_changed_spec_moves_the_generation(self, kube_admin: KubeClient, path: str) -> None:
        patches: list[Changes] = [
            {"metadata": {"labels": {"a": "b"}}},
            {"spec": {"pollInterval": "5s"}},  # as it is
            {"spec": {"shardSelector": {"matchLabels": {"a": "b"}}}},
        ]

        generations = [kube_admin.merge_patch(path, patch)["metadata"]["generation"] for patch in patches]

        assert generations == [1, 1, 2]

    @pytest.mark.parametrize(
        ("status", "field"),
        [
            ({"resources": "many"}, "resources"),
            ({"lastPollTime": "yesterday"}, "lastPollTime"),
            ({"conditions": [{"type": "Accepted"}]}, "conditions[0].reason"),
        ],
    )
    def test_a_bad_status_is_refused(
        self, kube_admin: KubeClient, path: str, status: dict[str, Json], field: str
    ) -> None:
        stored = kube_admin.get(path)

        response = kube_admin.send("PUT", f"{path}/status", {**stored, "status": status})

        assert response.status == 422
        assert f"status.{field}" in causes(response)

    def test_the_selector_of_another_manager_replaces_the_whole(
        self, kube_admin: KubeClient, namespace: str, path: str
    ) -> None:
        def apply(manager: str, label: str) -> KubeResponse:
            document = make_object({"shardSelector": {"matchLabels": {label: "x"}}}, namespace=namespace)
            return kube_admin.send(
                "PATCH", f"{path}?fieldManager={manager}&force=true", document, content_type=APPLY
            )

        apply("one", "region")

        changed = apply("two", "environment")

        assert changed.body["spec"]["shardSelector"] == {"matchLabels": {"environment": "x"}}

    def test_columns_show_the_status(self, kube_admin: KubeClient, path: str, status: dict[str, Json]) -> None:
        before = kube_admin.send("GET", path, accept=TABLE).body

        kube_admin.merge_patch(f"{path}/status", {"status": status})

        after = kube_admin.send("GET", path, accept=TABLE).body
        assert [each["name"] for each in after["columnDefinitions"]] == [
            *("Name", "Resource", "Accepted", "Running", "Degraded"),
            *("Resources", "Published", "Last Poll", "Age"),
        ]
        assert before["rows"][0]["cells"][:-1] == ["us-east", "clusters", *[None] * 6]
        assert after["rows"][0]["cells"][:-1] == [
            "us-east",
            "clusters",
            "Valid",
            "Polling",
            "Healthy",
            12,
            7,
            "3d1h",
        ]
        assert all(each["priority"] == 0 for each in after["columnDefinitions"])  # `kubectl get` shows them all
