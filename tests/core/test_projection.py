"""`fields=` returns exactly the requested fields."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.core.projection import FieldsError, compile_fields, requestable_paths
from sentinel.core.pulse.observation import FIELDS, PLAIN_FIELDS, observe

CLUSTER: Json = {
    "id": "c1",
    "kind": "Cluster",
    "labels": {"region": "us-east", "example.com/tier": "gold"},
    "metadata": {"name": "one", "labels": {"region": "us-east", "example.com/tier": "gold"}},
    "spec": {"size": 3, "zones": ["a", "b"], "dotted.name": {"x": 1, "y": 2}, "nothing": None},
    "status": {"phase": "Ready", "observed_generation": 2, "conditions": [{"type": "Ready"}]},
}

names = st.sampled_from(["id", "a", "b", "c.d", "é", "labels", "metadata"])
values: st.SearchStrategy[Json] = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just([{"a": 1}])),
    lambda inner: st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
documents = st.dictionaries(names, values, max_size=5)
paths = st.lists(names, min_size=1, max_size=3).map(tuple)


def project(fields: str, document: Json = CLUSTER) -> Json:
    projected: Json = msgspec.json.decode(compile_fields(fields).apply(msgspec.json.encode(document)))
    return projected


def written(path: tuple[str, ...]) -> str:
    return ".".join(name.replace(".", r"\.") for name in path)


def picked(document: Json, requested: set[tuple[str, ...]]) -> Json:
    """Project a document in the obvious, slow way."""
    if () in requested or not isinstance(document, dict):
        return document
    return {
        name: picked(member, {path[1:] for path in requested if path[0] == name})
        for name, member in document.items()
        if any(path[0] == name for path in requested)
    }


def with_label_key(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path with all names after labels joined into one key."""
    for size in (1, 2):
        if path[:size] in (("labels",), ("metadata", "labels")) and len(path) > size:
            return (*path[:size], ".".join(path[size:]))
    return path


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("id", {"id": "c1"}),
        ("kind", {"id": "c1", "kind": "Cluster"}),
        ("status.phase", {"id": "c1", "status": {"phase": "Ready"}}),
        ("spec.size,spec.zones", {"id": "c1", "spec": {"size": 3, "zones": ["a", "b"]}}),
        (" kind , id ", {"id": "c1", "kind": "Cluster"}),
        ("nonsense,nonsense.deep", {"id": "c1"}),
        ("spec.nonsense", {"id": "c1", "spec": {}}),
        ("spec.nothing", {"id": "c1", "spec": {"nothing": None}}),
        (r"spec.dotted\.name.x", {"id": "c1", "spec": {"dotted.name": {"x": 1}}}),
        ("metadata.labels.region", {"id": "c1", "metadata": {"labels": {"region": "us-east"}}}),
        ("labels.example.com/tier", {"id": "c1", "labels": {"example.com/tier": "gold"}}),
        (r"labels.example\.com/tier", {"id": "c1", "labels": {"example.com/tier": "gold"}}),
        ("metadata.labels.example.com/tier", {"id": "c1", "metadata": {"labels": {"example.com/tier": "gold"}}}),
    ],
)
def test_a_field_is_present_exactly_if_it_was_requested(fields: str, expected: Json) -> None:
    assert project(fields) == expected


@pytest.mark.parametrize("fields", ["spec,spec.size", "spec.size,spec", "spec,spec.size,spec.zones,spec"])
def test_a_path_below_another_adds_nothing(fields: str) -> None:
    assert project(fields) == project("spec")


def test_a_path_below_the_id_adds_nothing() -> None:
    assert project("id.nonsense") == {"id": "c1"}


@pytest.mark.parametrize("obstacle", ["text", 1, True, None, [{"phase": "Ready"}]])
def test_a_value_that_blocks_a_path_is_returned_whole(obstacle: Json) -> None:
    document: Json = {"id": "c1", "status": obstacle, "spec": {"size": {"x": 1, "y": 2}}}

    assert project("status.phase,spec.size.x", document) == {
        "id": "c1",
        "status": obstacle,
        "spec": {"size": {"x": 1}},
    }


def test_a_document_without_an_id_gets_no_id() -> None:
    assert project("kind", {"kind": "Cluster", "name": "one"}) == {"kind": "Cluster"}


@pytest.mark.parametrize("fields", ["spec", "spec.large,spec.precise", "spec.large,spec.precise,kind.x"])
def test_requested_values_are_copied_without_decoding(fields: str) -> None:
    spec = b'{"large":123456789012345678901234567890,"precise":1.000}'
    document = b'{"id":"c1", "kind":"Cluster", "spec": ' + spec + b"}"

    projected = compile_fields(fields).apply(document)

    assert spec in projected


def test_white_space_between_members_is_accepted() -> None:
    document = b' { "id" : "c1" , "kind" : "Cluster" , "spec" : { "size" : 3 , "more" : [ ] } } '

    projected = compile_fields("kind.x,spec.size,absent,spec.absent").apply(document)

    assert msgspec.json.decode(projected) == {"id": "c1", "kind": "Cluster", "spec": {"size": 3}}


def test_many_documents_are_projected_in_their_order() -> None:
    cluster = msgspec.json.encode(CLUSTER)
    projection = compile_fields("status.phase")

    projected = projection.apply_all([cluster, b'{"id":"c2","status":null}', b'{"id":"c3","status":"odd"}'])

    assert projected == b",".join(
        [b'{"id":"c1","status":{"phase":"Ready"}}', b'{"id":"c2","status":null}', b'{"id":"c3","status":"odd"}']
    )


def test_documents_that_are_joined_are_projected() -> None:
    projection = compile_fields("status.phase")

    assert projection.apply_all([]) == projection.apply_joined(b"") == b""
    assert projection.apply_joined(b'{"id":"1","x":1},{"id":"2","status":{"phase":3}}') == (
        b'{"id":"1"},{"id":"2","status":{"phase":3}}'
    )
    assert (
        projection.apply_joined(b'{"id":"1","x":1},{"id":"2","status":3}') == b'{"id":"1"},{"id":"2","status":3}'
    )


def test_the_observation_is_the_same_for_the_requested_fields() -> None:
    whole = msgspec.json.encode(CLUSTER)

    assert observe(compile_fields(",".join(FIELDS)).apply(whole)) == observe(whole)


def test_the_same_fields_are_compiled_once() -> None:
    assert compile_fields("id,kind") is compile_fields("id,kind")


@pytest.mark.parametrize("fields", ["", "kind,", ",kind", ".kind", "kind.", "a..b", "labels.", " "])
def test_a_path_with_an_empty_name_is_rejected(fields: str) -> None:
    with pytest.raises(FieldsError, match=r"expected names separated by dots, such as status\.phase, got"):
        compile_fields(fields)


@pytest.mark.parametrize("path", ['a"b', r"a\b", "a\\\\.b", "a\nb", "a\0", "\\"])
def test_a_name_with_forbidden_characters_is_rejected(path: str) -> None:
    with pytest.raises(FieldsError) as caught:
        compile_fields(f"kind,{path}")

    assert str(caught.value).endswith(f'got "{path}"')


def test_a_path_has_at_most_8_names() -> None:
    assert project("a.b.c.d.e.f.g.h") == {"id": "c1"}

    with pytest.raises(FieldsError, match=r'at most 8 names, got "a\.b\.c\.d\.e\.f\.g\.h\.i"'):
        compile_fields("a.b.c.d.e.f.g.h.i")


def test_there_are_at_most_64_paths() -> None:
    assert project(",".join(["kind"] * 64)) == {"id": "c1", "kind": "Cluster"}

    with pytest.raises(FieldsError, match="at most 64 paths, got 65"):
        compile_fields(",".join(["kind"] * 65))


def test_there_are_at_most_1024_characters() -> None:
    assert project("x" * 1024) == {"id": "c1"}

    with pytest.raises(FieldsError, match="at most 1024 characters, got 1025"):
        compile_fields("x" * 1025)


def test_a_long_path_is_not_repeated_whole() -> None:
    with pytest.raises(FieldsError) as caught:
        compile_fields("x" * 1000 + '"')

    assert len(str(caught.value)) < 200


@given(documents, st.lists(paths, min_size=1, max_size=6))
def test_it_equals_picking_fields_by_hand(document: dict[str, Json], requested: list[tuple[str, ...]]) -> None:
    fields = ",".join(map(written, requested))

    assert project(fields, document) == picked(document, {("id",), *map(with_label_key, requested)})


@given(st.text(alphabet='ab.,\\" \né', max_size=16))
def test_any_string_compiles_or_is_rejected(text: str) -> None:
    try:
        projection = compile_fields(text)
    except FieldsError:
        return

    assert b'"c1"' in projection.apply(msgspec.json.encode(CLUSTER))


class TestRequestablePaths:
    def test_requestable_paths_are_unique_and_in_order(self) -> None:
        assert requestable_paths(["id", "status.phase", "id", "spec"]) == ("id", "status.phase", "spec")

    def test_a_path_that_is_too_deep_is_cut(self) -> None:
        assert requestable_paths(["a.b.c.d.e.f.g.h.i.j", "a.b.c.d.e.f.g.h.k"]) == ("a.b.c.d.e.f.g.h",)

    def test_a_path_below_a_label_is_cut(self) -> None:
        asked = requestable_paths(["labels.region.name", "metadata.labels.region.name", "metadata.name.first"])

        assert asked == ("labels.region", "metadata.labels.region", "metadata.name.first")

    def test_too_many_paths_become_their_first_names(self) -> None:
        assert requestable_paths(["id", *(f"spec.field_{n}" for n in range(64))]) == ("id", "spec")

    def test_too_many_first_names_become_everything(self) -> None:
        assert requestable_paths(f"field_{n}" for n in range(65)) == ()
        assert requestable_paths(["x" * 1025]) == ()

    @given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12).map(".".join), max_size=80))
    def test_requestable_paths_compile_and_cover_the_given_ones(self, requested: list[str]) -> None:
        asked = requestable_paths(["id", *requested])

        compile_fields(",".join(asked))
        assert all(any(f"{path}.".startswith(f"{top}.") for top in asked) for path in requested)

    def test_a_plain_document_needs_only_the_plain_fields(self) -> None:
        plain: Json = {
            "id": "c1",
            "labels": {"region": "us-east"},
            "metadata": {"labels": {"region": "elsewhere"}},
            "pulse_requested_time": "2026-03-01T12:00:00Z",
            "paused": True,
            "status": {
                "phase": "Ready",
                "observed_generation": 2,
                "last_updated_time": "2026-03-01T12:00:00Z",
                "last_progress_time": "2026-03-01T11:00:00Z",
                "progress_count": 2,
                "conditions": [{"type": "Ready", "status": "False"}],
            },
        }
        whole = msgspec.json.encode(plain)

        assert observe(compile_fields(",".join(PLAIN_FIELDS)).apply(whole)) == observe(whole)
