"""The metadata of raw objects, well-formed or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json, Malformed
from sentinel.core.kube import objects
from sentinel.core.kube.objects import ObjectKey, ObjectReference

TIME = "2025-10-21T12:00:00Z"
METADATA: dict[str, Json] = {
    "name": "w",
    "namespace": "prod",
    "uid": "u-1",
    "resourceVersion": "42",
    "generation": 3,
    "creationTimestamp": TIME,
    "deletionTimestamp": "2025-10-21T14:00:00+02:00",
    "labels": {"app": "w"},
    "annotations": {"note": ""},
}
WIDGET: dict[str, Json] = {"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": METADATA}

READERS: list[Callable[[Mapping[str, Json]], object]] = [
    objects.key,
    objects.reference,
    objects.name,
    objects.namespace,
    objects.uid,
    objects.resource_version,
    objects.generation,
    objects.creation_time,
    objects.deletion_time,
    objects.read_labels,
    objects.read_annotations,
]


def with_metadata(**fields: Json) -> dict[str, Json]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", **fields}}


def test_every_field_is_read() -> None:
    noon = datetime(2025, 10, 21, 12, tzinfo=UTC)

    assert objects.name(WIDGET) == "w"
    assert objects.namespace(WIDGET) == "prod"
    assert objects.uid(WIDGET) == "u-1"
    assert objects.resource_version(WIDGET) == "42"
    assert objects.generation(WIDGET) == 3
    assert objects.creation_time(WIDGET) == noon
    assert objects.deletion_time(WIDGET) == noon
    assert objects.read_labels(WIDGET) == {"app": "w"}
    assert objects.read_annotations(WIDGET) == {"note": ""}


def test_fields_that_may_be_absent_have_defaults() -> None:
    bare = with_metadata()

    assert objects.namespace(bare) == ""
    assert objects.generation(bare) == 0
    assert objects.creation_time(bare) is None
    assert objects.deletion_time(bare) is None
    assert objects.read_labels(bare) == {}
    assert objects.read_annotations(bare) == {}


def test_the_zero_time_of_go_is_no_time() -> None:
    assert objects.creation_time(with_metadata(creationTimestamp="0001-01-01T00:00:00Z")) is None


def test_a_key_is_a_pair_and_reads_like_kubectl() -> None:
    assert objects.key(WIDGET) == ("prod", "w")
    assert str(objects.key(WIDGET)) == "prod/w"
    assert str(ObjectKey("", "node-1")) == "node-1"


def test_a_reference_names_one_version_of_the_object() -> None:
    assert objects.reference(WIDGET) == ObjectReference(
        api_version="ex.io/v1", kind="Widget", namespace="prod", name="w", uid="u-1", resource_version="42"
    )


@pytest.mark.parametrize(
    ("read", "malformed", "message"),
    [
        (objects.name, {}, "metadata: expected an object, got nothing"),
        (objects.name, {"metadata": [1]}, "metadata: expected an object, got a list"),
        (objects.name, {"metadata": {}}, "metadata.name: expected a text, got nothing"),
        (objects.name, with_metadata(name={"a": "hunter2"}), "metadata.name: expected a text, got an object"),
        (objects.uid, with_metadata(), "metadata.uid: expected a text, got nothing"),
        (objects.uid, with_metadata(uid=None), "metadata.uid: expected a text, got nothing"),
        (objects.namespace, with_metadata(namespace=7), "metadata.namespace: expected a text, got 7"),
        (objects.generation, with_metadata(generation=-1), "metadata.generation: expected a number"),
        (objects.generation, with_metadata(generation=True), "metadata.generation: expected a number"),
        (objects.creation_time, with_metadata(creationTimestamp="today"), "creationTimestamp: expected a time"),
        (objects.deletion_time, with_metadata(deletionTimestamp="x" * 99), "got 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        (objects.read_labels, with_metadata(labels=["a"]), "metadata.labels: expected an object, got a list"),
        (
            objects.read_annotations,
            with_metadata(annotations={"a": 1}),
            "metadata.annotations[a]: expected a text",
        ),
        (objects.reference, {"metadata": {}}, "apiVersion: expected a text, got nothing"),
    ],
)
def test_a_malformed_field_is_named(
    read: Callable[[Mapping[str, Json]], object], malformed: dict[str, Json], message: str
) -> None:
    with pytest.raises(Malformed) as raised:
        read(malformed)

    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert len(str(raised.value)) < 120


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(list(METADATA)), json_values | st.just(TIME)), st.sampled_from(READERS))
def test_readers_return_or_raise_malformed(
    metadata: dict[str, Json], read: Callable[[Mapping[str, Json]], object]
) -> None:
    with suppress(Malformed):
        read({"metadata": metadata})
