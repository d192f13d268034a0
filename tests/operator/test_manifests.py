"""SentinelConfigs are read from objects and from files, with all their problems."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.operator import manifests
from sentinel.operator.manifests import ManifestFile
from sentinel.operator.sentinel_config import SentinelConfigSpec
from sentinel.runtime.settings.schema import section
from tests.operator.resources import RABBITMQ, REMOVED, make_config, make_object, valid_specs

MANIFEST = """\
apiVersion: hyperfleet.redhat.com/v1alpha1
kind: SentinelConfig
metadata:
  name: us-east
spec:
  resourceType: clusters
  hyperfleetAPI:
    url: http://api
  broker:
    type: rabbitmq
    topic: events
    url: amqp://rabbitmq
"""
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {a: 1, a: 2}\n"

Read = Callable[[str], ManifestFile | None]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_text(text: str) -> ManifestFile | None:
        file = tmp_path / "f.yaml"
        file.write_text(text)
        return manifests.read_file(file)

    return read_text


def problems(changes: dict[str, Any]) -> list[tuple[str, str]]:
    loaded = manifests.read_object(make_object(changes))
    assert loaded.settings is None
    assert loaded.entries == ()
    return [(problem.field, problem.message) for problem in loaded.problems]


def file_problems(found: ManifestFile | None) -> list[tuple[int | None, int | None, str, str]]:
    assert found is not None
    each = [problem for config in found.configs for problem in config.problems]
    return [(p.line, p.column, p.field, p.message) for p in (*each, *found.problems)]


class TestProblems:
    @pytest.mark.parametrize(
        ("changes", "field", "message"),
        [
            ({"resourceType": REMOVED}, "spec.resourceType", "required, but missing; expected one of clusters"),
            ({"resourceType": "cluster"}, "spec.resourceType", '"cluster"; did you mean clusters?'),
            ({"hyperfleetAPI": REMOVED}, "spec.hyperfleetAPI.url", "required, but missing; expected a URL"),
            ({"hyperfleetAPI.url": "http://u:p@h"}, "spec.hyperfleetAPI.url", "use tokenSecretRef"),
            (
                {"hyperfleetAPI.url": "ftp://h"},
                "spec.hyperfleetAPI.url",
                "expected a URL such as http://hyperfleet",
            ),
            ({"hyperfleetAPI.timeout": "0s"}, "spec.hyperfleetAPI.timeout", "expected a duration such as 5s"),
            (
                {"hyperfleetAPI.tokenSecretRef": {}},
                "spec.hyperfleetAPI.tokenSecretRef.name",
                "required, but missing",
            ),
            (
                {"hyperfleetAPI.tokenSecretRef": {"name": "A"}},
                "spec.hyperfleetAPI.tokenSecretRef.name",
                "the name of",
            ),
            (
                {"hyperfleetAPI.tokenSecretRef": {"name": "a", "key": "a/b"}},
                "spec.hyperfleetAPI.tokenSecretRef.key",
                "a key of a Secret",
            ),
            ({"backoffReady": "5"}, "spec.backoffReady", 'expected a duration such as 5s, got "5"'),
            ({"backoffReady": 5}, "spec.backoffReady", "got a number; quote it if it is text"),
            ({"backoffNotReady": "-1s"}, "spec.backoffNotReady", "expected a duration such as 5s"),
            ({"pollInterval": "99ms"}, "spec.pollInterval", "at least 100ms"),
            ({"republishInterval": "-1s"}, "spec.republishInterval", "at least 0s"),
            ({"pageSize": 0}, "spec.pageSize", "a whole number from 1 to 1000"),
            ({"pageSize": "10"}, "spec.pageSize", "got text; write it without quotes"),
            ({"generationCheck": "true"}, "spec.generationCheck", "got text; write it without quotes"),
            ({"maxEventsPerSecond": 0}, "spec.maxEventsPerSecond", "a number from 0.001 to 1000000"),
            ({"messageData": {"a": "{{.id"}}, "spec.messageData.a", ""),
            ({"messageData": {"a": ""}}, "spec.messageData.a", "expected text"),
            ({"messageData": {"a": [1]}}, "spec.messageData.a", "got a list"),
            ({"messageDataTypes": "json"}, "spec.messageDataTypes", "expected one of text, native"),
            ({"pollIntervall": "5s"}, "spec.pollIntervall", "unknown key; did you mean spec.pollInterval?"),
            ({"hyperfleetApi": {}}, "spec.hyperfleetApi", "unknown key; did you mean spec.hyperfleetAPI?"),
            ({"broker.projectId": "x"}, "spec.broker.projectId", "did you mean spec.broker.projectID?"),
            ({"broker.type": "pubsub"}, "spec.broker.type", "expected one of gcp-pubsub, rabbitmq"),
            ({"broker.topic": REMOVED}, "spec.broker.topic", "required, but missing"),
            ({"broker.topic": ""}, "spec.broker.topic", "the name of a topic or an exchange"),
            ({"broker.topic": "has spaces"}, "spec.broker.topic", "the id of a topic"),
            ({"broker.topic": "goog-events"}, "spec.broker.topic", "the id of a topic"),
            ({"broker.projectID": REMOVED}, "spec.broker.projectID", "required with type gcp-pubsub, but missing"),
            ({"broker.projectID": "a b"}, "spec.broker.projectID", "the id of a project"),
            ({"broker.exchange": ""}, "spec.broker.exchange", "the name of a topic or an exchange"),
            ({"broker.exchange": "é" * 128}, "spec.broker.exchange", "at most 255 bytes"),
            ({"broker": {**RABBITMQ, "topic": "é" * 128}}, "spec.broker.topic", "at most 255 bytes"),
            ({"broker": {**RABBITMQ, "url": "http://h"}}, "spec.broker.url", "expected a URL such as amqp://"),
            ({"broker": {"type": "rabbitmq", "topic": "t"}}, "spec.broker.url", "required with type rabbitmq"),
            (
                {"broker.credentialsSecretRef": {}},
                "spec.broker.credentialsSecretRef.name",
                "required, but missing",
            ),
        ],
    )
    def test_a_problem_names_its_field(self, changes: dict[str, Any], field: str, message: str) -> None:
        ((found, text),) = problems(changes)

        assert found == field
        assert message in text

    @pytest.mark.parametrize(
        ("selector", "field"),
        [
            ({"matchLabels": {"-a": "b"}}, "matchLabels.-a"),
            ({"matchLabels": {"a": "b c"}}, "matchLabels.a"),
            ({"matchLabels": {"a": 1}}, "matchLabels.a"),
            ({"matchLabels": ["a"]}, "matchLabels"),
            ({"matchExpressions": [{"operator": "Exists"}]}, "matchExpressions[0].key"),
            ({"matchExpressions": [{"key": "a", "operator": "in"}]}, "matchExpressions[0].operator"),
            ({"matchExpressions": [{"key": "a", "operator": "Gt"}]}, "matchExpressions[0].operator"),
            ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "matchExpressions[0].values"),
            ({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}, "matchExpressions[0].values"),
            (
                {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
                "matchExpressions[0].values",
            ),
            (
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c d"]}]},
                "matchExpressions[0].values[1]",
            ),
            ({"matchExpression": []}, "matchExpression"),
        ],
    )
    def test_a_selector_that_kubernetes_refuses_is_a_problem(self, selector: Json, field: str) -> None:
        ((found, _),) = problems({"shardSelector": selector})

        assert found == f"spec.shardSelector.{field}"

    @pytest.mark.parametrize("operator", ["Exists", "DoesNotExist"])
    def test_a_selector_that_search_cannot_express_is_a_problem(self, operator: str) -> None:
        selector = {"matchExpressions": [{"key": "gpu", "operator": operator}]}

        ((field, message),) = problems({"selectorParam": "search", "shardSelector": selector})

        assert field == "spec.shardSelector"
        assert message.startswith("expected a selector of =, !=, in and notin for a search, got")
        assert make_config({"selectorParam": "labels", "shardSelector": selector}).selector

    def test_search_accepts_labels_and_sets(self) -> None:
        selector = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", "c"]}]}

        config = make_config({"selectorParam": "search", "shardSelector": selector})

        assert config.selector.as_search_parameter() == "not (labels.a in ('b','c'))"

    def test_all_problems_are_reported_at_once(self) -> None:
        found = problems({"pollInterval": "1", "broker.type": "x", "hyperfleetAPI.url": REMOVED, "extra": 1})

        assert {field for field, _ in found} == {
            "spec.pollInterval",
            "spec.broker.type",
            "spec.hyperfleetAPI.url",
            "spec.extra",
        }

    def test_a_problem_of_an_object_has_neither_place_nor_name(self) -> None:
        (problem,) = manifests.read_object(make_object({"pollInterval": "5"})).problems

        assert str(problem) == 'spec.pollInterval: expected a duration such as 5s, got "5"'

    @pytest.mark.parametrize("url", ["amqp://u:hunter2/@h", "hunter2", "http://u:hunter2@h"])
    def test_no_password_is_shown(self, url: str) -> None:
        loaded = manifests.read_object(make_object({"broker": {**RABBITMQ, "url": url}}))

        assert [problem.field for problem in loaded.problems] == ["spec.broker.url"]
        assert "hunter2" not in str(loaded)

    @pytest.mark.parametrize(
        ("broker", "warning"),
        [
            ({"broker.url": "amqp://h"}, "spec.broker.url is not used with type gcp-pubsub"),
            ({"broker.exchange": "e"}, "spec.broker.exchange is not used with type gcp-pubsub"),
            ({"broker": {**RABBITMQ, "projectID": "p"}}, "spec.broker.projectID is not used with type rabbitmq"),
        ],
    )
    def test_fields_of_the_other_broker_cause_a_warning(self, broker: dict[str, Any], warning: str) -> None:
        loaded = manifests.read_object(make_object(broker))

        assert loaded.problems == ()
        assert loaded.warnings == (warning,)


class TestObject:
    def test_metadata_is_that_of_the_api_server(self) -> None:
        config = make_config(
            uid="a-b-c",
            generation=7,
            creationTimestamp="2025-10-21T12:00:00Z",
            managedFields=[{"manager": "kubectl", "fieldsV1": {f"f:{n}": {} for n in range(20_000)}}],
        )

        assert (config.name, config.namespace) == ("us-east", "hyperfleet-system")
        assert (config.uid, config.generation) == ("a-b-c", 7)
        assert config.created == datetime(2025, 10, 21, 12, tzinfo=UTC)

    def test_a_status_is_ignored(self) -> None:
        document = make_object() | {"status": {"conditions": [{}] * 20_000}}

        assert manifests.read_object(document).problems == ()

    @pytest.mark.parametrize("document", [{}, {"spec": None}, {"metadata": []}, {"spec": [], "metadata": None}])
    def test_an_incomplete_object_has_problems(self, document: dict[str, Json]) -> None:
        loaded = manifests.read_object(document)

        assert loaded.settings is None
        assert {"apiVersion", "metadata.name"} <= {problem.field for problem in loaded.problems}

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [name for path in section(SentinelConfigSpec).paths() for name in path.split(".")]
                    )
                    | st.text(max_size=3),
                    inner,
                    max_size=5,
                )
            ),
        )
    )
    def test_any_spec_is_a_config_or_problems(self, spec: Json) -> None:
        loaded = manifests.read_object(make_object() | {"spec": spec})

        assert (loaded.settings is None) == bool(loaded.problems)


class TestFile:
    def test_a_manifest_is_a_config_with_positions(self, read: Read) -> None:
        found = read(MANIFEST)

        assert found is not None
        (loaded,) = found.configs
        assert loaded.settings is not None
        assert loaded.settings.name == "us-east"
        assert loaded.settings.created is None
        assert found.problems == ()
        entries = {entry.key: (entry.value, entry.origin.rpartition(":")[2]) for entry in loaded.entries}
        assert entries["metadata.name"] == ("us-east", "4")
        assert entries["spec.hyperfleetAPI.url"] == ("http://api", "8")
        assert entries["spec.pollInterval"] == ("5s", "default")

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            ("clusters", "cluster", (6, 17, "spec.resourceType")),
            ("    url: http://api\n", "    {}\n", (7, 3, "spec.hyperfleetAPI.url")),
            ("    url: amqp://rabbitmq\n", "", (10, 5, "spec.broker.url")),
            ("name: us-east", "nmae: us-east", (3, 1, "metadata.name")),
            ("name: us-east", "name: US_EAST", (4, 9, "metadata.name")),
            ("v1alpha1", "v1", (1, 13, "apiVersion")),
            ("spec:\n", "spec:\n  backoff: 1s\n", (6, 3, "spec.backoff")),
            ("spec:\n", "Spec: {}\nspec:\n", (5, 1, "Spec")),
            ("clusters", "clusters\n  resourceType: clusters", (7, 3, "spec.resourceType")),
            (
                "spec:\n",
                "spec:\n  shardSelector:\n    matchLabels: {a: 1}\n",
                (7, 22, "spec.shardSelector.matchLabels.a"),
            ),
            (
                "spec:\n",
                "spec:\n  selectorParam: search\n  shardSelector:\n    matchExpressions:\n"
                "    - {key: a, operator: Exists}\n",
                (8, 5, "spec.shardSelector"),
            ),
            (
                "spec:\n",
                "spec:\n  shardSelector:\n    matchExpressions:\n    - key: a\n      operator: In\n"
                "      values: [b, -]\n",
                (10, 19, "spec.shardSelector.matchExpressions[0].values[1]"),
            ),
        ],
    )
    def test_a_problem_has_its_position(
        self, read: Read, old: str, new: str, expected: tuple[int, int, str]
    ) -> None:
        assert MANIFEST.count(old) == 1

        ((line, column, field, _),) = file_problems(read(MANIFEST.replace(old, new)))

        assert (line, column, field) == expected

    def test_other_kinds_are_passed_over(self, read: Read) -> None:
        second = MANIFEST.replace("name: us-east", "name: us-west")

        found = read(f"# sharding\n---\n{MANIFEST}---\n{OTHER}---\n---\n{second}")

        assert found is not None
        assert found.problems == ()
        assert [loaded.settings and loaded.settings.name for loaded in found.configs] == ["us-east", "us-west"]

    @pytest.mark.parametrize("kind", ["List", "SentinelConfigList"])
    def test_the_output_of_kubectl_get_is_read(self, read: Read, kind: str) -> None:
        items = [make_object(name=name, uid="u") | {"status": {"resources": 3}} for name in ("a", "b")]
        document = {"apiVersion": "v1", "kind": kind, "items": items, "metadata": {"resourceVersion": ""}}

        found = read(msgspec.json.encode(document).decode())

        assert found is not None
        assert [loaded.settings and loaded.settings.name for loaded in found.configs] == ["a", "b"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "resource_type: clusters\n",
            OTHER,
            f"{OTHER}---\n{OTHER}",
            "a: [\n",
            "- a\n",
            "kind: [SentinelConfig]\n",
        ],
    )
    def test_a_file_without_a_config_is_none(self, read: Read, text: str) -> None:
        assert read(text) is None

    def test_a_file_that_cannot_be_read_is_none(self, tmp_path: Path) -> None:
        assert manifests.read_file(tmp_path / "missing.yaml") is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (f"{MANIFEST}---\na: [\n", (14, "")),
            (f"{OTHER}---\n{MANIFEST}  bad: [\n", (18, "")),
            (f"{MANIFEST}---\nresource_type: clusters\n", (14, "kind")),
            (f"{MANIFEST}---\n- a\n", (14, "")),
        ],
    )
    def test_a_document_that_is_no_object_is_a_problem(
        self, read: Read, text: str, expected: tuple[int, str]
    ) -> None:
        ((line, _, field, _),) = file_problems(read(text))

        assert (line, field) == expected

    def test_a_duplicate_key_in_a_list_is_a_problem(self, read: Read) -> None:
        indented = MANIFEST.replace("\n", "\n  ")

        found = read(f"kind: List\nitems:\n- {indented}  pollInterval: 1s\n    pollInterval: 2s\n")

        assert [(line, field) for line, _, field, _ in file_problems(found)] == [
            (16, "items[0].spec.pollInterval")
        ]

    @given(spec=valid_specs)
    @hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_manifest_means_the_same_as_the_object(self, tmp_path: Path, spec: dict[str, Json]) -> None:
        document = make_object() | {"spec": spec}
        file = tmp_path / "f.yaml"
        file.write_bytes(msgspec.json.encode(document))

        found = manifests.read_file(file)

        assert found is not None
        assert found.configs[0].settings == manifests.read_object(document).settings


class TestDuplicates:
    def test_the_later_of_two_with_the_same_shard_is_a_duplicate(self) -> None:
        first, other, second, third = (
            make_config(name="first"),
            make_config({"resourceType": "nodepools"}, name="other"),
            make_config({"pollInterval": "1s"}, name="second"),
            make_config({"shardSelector": {"matchLabels": {}}}, name="third"),
        )

        assert list(manifests.duplicates([first, other, second, third])) == [(first, second), (first, third)]

    def test_namespaces_do_not_matter_to_each_other(self) -> None:
        configs = [make_config(), make_config(namespace="elsewhere")]

        assert list(manifests.duplicates(configs)) == []
