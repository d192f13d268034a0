"""The CRD accepts what the operator accepts, and refuses what a schema can refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.operator import crd, manifests
from tests.operator.resources import RABBITMQ, REMOVED, make_object, valid_specs
from tests.support.structural_schema import errors, with_defaults
from tools.reference import docstrings

PROMISED = Path(__file__).parents[1] / "golden" / "sentinelconfig" / "minimal-crd.yaml"

DOCUMENT: Any = crd.document(docstrings)
(VERSION,) = DOCUMENT["spec"]["versions"]
ROOT = VERSION["schema"]["openAPIV3Schema"]
SPEC = ROOT["properties"]["spec"]


def refusals(changes: dict[str, Any]) -> list[str]:
    return errors(ROOT, make_object(changes))


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the schema of every field."""
    for key, field in schema.get("properties", {}).items():
        yield f"{path}.{key}", field
        yield from fields(field, f"{path}.{key}")
        yield from fields(field.get("items", {}), f"{path}.{key}[]")


def test_it_says_everything_that_was_promised() -> None:
    promised = yaml.safe_load(PROMISED.read_text())
    spec, ours = promised["spec"], DOCUMENT["spec"]

    assert {key: promised[key] for key in ("apiVersion", "kind", "metadata")} == {
        key: DOCUMENT[key] for key in ("apiVersion", "kind", "metadata")
    }
    assert (spec["group"], spec["names"], spec["scope"]) == (ours["group"], ours["names"], ours["scope"])
    assert [VERSION[key] for key in ("name", "served", "storage")] == ["v1alpha1", True, True]
    promised_fields = dict(fields(spec["versions"][0]["schema"]["openAPIV3Schema"]))
    our_fields = dict(fields(ROOT))
    for path, field in promised_fields.items():
        for key in ("type", "default", "enum", "required", "additionalProperties"):
            assert field.get(key) in (our_fields[path].get(key), None), (path, key)
    added_defaults = {path for path, field in our_fields.items() if "default" in field} - {
        path for path, field in promised_fields.items() if "default" in field
    }
    assert added_defaults == {
        ".spec.hyperfleetAPI.watch",
        ".spec.messageDataTypes",
        ".spec.selectorParam",
        ".spec.pageSize",
        ".spec.generationCheck",
        ".spec.hyperfleetAPI.tokenSecretRef.key",
    }


def test_every_field_of_the_spec_is_described_and_typed() -> None:
    for path, field in fields(SPEC):
        assert field["description"].endswith("."), path
        assert "type" in field, path


def test_the_status_is_a_subresource_with_the_promised_fields() -> None:
    status = ROOT["properties"]["status"]

    assert VERSION["subresources"] == {"status": {}}
    assert list(status["properties"]) == [
        "observedGeneration",
        "lastPollTime",
        "resources",
        "published",
        "conditions",
    ]
    assert status["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_a_status_of_the_operator_is_accepted() -> None:
    condition = {
        "type": "Accepted",
        "status": "True",
        "observedGeneration": 3,
        "lastTransitionTime": "2025-10-21T12:00:00Z",
        "reason": "Valid",
        "message": "",
    }
    status = {
        "observedGeneration": 3,
        "lastPollTime": "2025-10-21T12:00:00Z",
        "resources": 12,
        "published": 0,
        "conditions": [condition],
    }

    assert errors(ROOT, make_object() | {"status": status}) == []


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"resourceType": "workloads"}, ".spec.resourceType"),
        ({"resourceType": REMOVED}, ".spec.resourceType"),
        ({"hyperfleetAPI": REMOVED}, ".spec.hyperfleetAPI"),
        ({"hyperfleetAPI.url": REMOVED}, ".spec.hyperfleetAPI.url"),
        ({"hyperfleetAPI.timeout": "ten"}, ".spec.hyperfleetAPI.timeout"),
        ({"broker": REMOVED}, ".spec.broker"),
        ({"broker.type": REMOVED}, ".spec.broker.type"),
        ({"broker.topic": REMOVED}, ".spec.broker.topic"),
        ({"broker.type": "kafka"}, ".spec.broker.type"),
        ({"broker.projectID": REMOVED}, ".spec.broker.projectID"),
        ({"broker.projectID": ""}, ".spec.broker.projectID"),
        ({"broker": {"type": "rabbitmq", "topic": "t"}}, ".spec.broker.url"),
        ({"broker": {**RABBITMQ, "url": ""}}, ".spec.broker.url"),
        ({"backoffNotReady": 10}, ".spec.backoffNotReady"),
        ({"backoffNotReady": "10"}, ".spec.backoffNotReady"),
        ({"backoffNotReady": "0s"}, ".spec.backoffNotReady"),
        ({"backoffReady": "-30m"}, ".spec.backoffReady"),
        ({"backoffReady": "8761h"}, ".spec.backoffReady"),
        ({"backoffReady": "1" * 64 + "s"}, ".spec.backoffReady"),
        ({"pollInterval": "99ms"}, ".spec.pollInterval"),
        ({"pollInterval": ""}, ".spec.pollInterval"),
        ({"republishInterval": "-1s"}, ".spec.republishInterval"),
        ({"pageSize": 0}, ".spec.pageSize"),
        ({"pageSize": "100"}, ".spec.pageSize"),
        ({"generationCheck": "true"}, ".spec.generationCheck"),
        ({"maxEventsPerSecond": 0}, ".spec.maxEventsPerSecond"),
        ({"messageData": []}, ".spec.messageData"),
        ({"messageDataTypes": "json"}, ".spec.messageDataTypes"),
        ({"selectorParam": "q"}, ".spec.selectorParam"),
        ({"shardSelector": {"matchLabels": {"a": 1}}}, ".spec.shardSelector.matchLabels.a"),
        (
            {"shardSelector": {"matchExpressions": [{"key": "a"}]}},
            ".spec.shardSelector.matchExpressions[0].operator",
        ),
        ({"hyperfleetAPI.tokenSecretRef": {}}, ".spec.hyperfleetAPI.tokenSecretRef.name"),
        ({"broker.credentialsSecretRef": {"name": 1}}, ".spec.broker.credentialsSecretRef.name"),
    ],
)
def test_a_bad_field_is_refused_at_its_path(changes: dict[str, Any], refused: str) -> None:
    (refusal,) = refusals(changes)

    assert refusal.partition(":")[0] == refused


@given(valid_specs)
def test_every_spec_that_the_operator_accepts_is_accepted(spec: dict[str, Json]) -> None:
    assert errors(SPEC, spec) == []


_NUMBER = st.sampled_from(["0", "1", "99", "100", ".5", "1.", "1.5", "8760", "8761", "-1", "+2"])
_UNIT = st.sampled_from(["ns", "us", "ms", "s", "m", "h", "", "d"])


@example([("8760", "h"), ("1", "ns")], "backoffReady")
@given(st.lists(st.tuples(_NUMBER, _UNIT), max_size=3), st.sampled_from(["backoffReady", "pollInterval"]))
def test_durations_that_the_operator_accepts_are_accepted(parts: list[tuple[str, str]], field: str) -> None:
    document = make_object({field: "".join(number + unit for number, unit in parts)})
    is_refused = bool(errors(ROOT, document))

    if manifests.read_object(document).problems:
        # A microsecond is the resolution of the settings: what is shorter is left to the operator.
        assert is_refused or any("ns" in unit for _, unit in parts)
    else:
        assert not is_refused


@given(valid_specs)
def test_defaults_of_the_crd_are_those_of_the_operator(spec: dict[str, Json]) -> None:
    completed = with_defaults(SPEC, spec)

    plain, defaulted = (
        manifests.read_object(make_object() | {"spec": each}).settings for each in (spec, completed)
    )

    assert plain is not None
    assert plain == defaulted
