"""`message_data`: compiled once, composed for each resource."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.gotemplate import TemplateError
from sentinel.core.json import DECODE_ERRORS, Json, Malformed
from sentinel.core.pulse.decision import Reason
from sentinel.core.pulse.message import (
    ByReason,
    Composed,
    Composer,
    DataTypes,
    FieldPath,
    Literal,
    MessageData,
    compile_leaf,
    reason_data,
)

CLUSTER: Json = {
    "id": "cls-123",
    "kind": "Cluster",
    "generation": 2,
    "metadata": {"labels": {"region": "us-east"}, "name": "one", "note": None},
    "spec": {"nodes": [1, 2.5], "paid": True},
}


def compose(
    message_data: MessageData, document: Json = CLUSTER, reason: Reason = Reason.EXPIRED_NOT_READY
) -> Composed:
    return Composer(message_data).compose(document, reason)


def data(message_data: MessageData, document: Json = CLUSTER, reason: Reason = Reason.EXPIRED_NOT_READY) -> Json:
    decoded: Json = msgspec.json.decode(compose(message_data, document, reason).data)
    return decoded


def test_the_example_of_the_specification() -> None:
    assert data({"resource_id": ".id", "region": ".metadata.labels.region"}) == {
        "resource_id": "cls-123",
        "region": "us-east",
    }


def test_objects_nest_and_literals_stay() -> None:
    composed = data({"who": {"id": ".id", "by": "sentinel"}, "version": "1"})

    assert composed == {"who": {"id": "cls-123", "by": "sentinel"}, "version": "1"}


def test_values_are_strings_as_go_prints_them() -> None:
    composed = data({"generation": ".generation", "nodes": ".spec.nodes", "spec": ".spec"})

    assert composed == {"generation": "2", "nodes": "[1 2.5]", "spec": "map[nodes:[1 2.5] paid:true]"}


def test_null_prints_as_an_empty_string_and_is_not_missing() -> None:
    composed = compose({"note": ".metadata.note"})

    assert msgspec.json.decode(composed.data) == {"note": ""}
    assert composed.missing == ()


def test_a_missing_field_is_empty_and_reported_by_name() -> None:
    composed = compose({"a": {"b": ".metadata.owner"}, "c": ".nothing.at.all"})

    assert msgspec.json.decode(composed.data) == {"a": {"b": ""}, "c": ""}
    assert composed.missing == ("a.b", "c")


@pytest.mark.parametrize(
    ("path", "described"),
    [
        (".id.x", "a string"),
        (".metadata.note.x", "null"),
        (".spec.paid.x", "a boolean"),
        (".spec.nodes.x", "a list"),
        (".generation.x", "a number"),
    ],
)
def test_a_field_of_a_scalar_fails_without_showing_the_value(path: str, described: str) -> None:
    composed = compose({"a": path})

    assert msgspec.json.decode(composed.data) == {"a": ""}
    assert composed.failed == (("a", f"can't evaluate field x in {described}"),)


def test_a_dot_alone_is_the_whole_resource() -> None:
    assert data({"all": "."}, {"id": "a", "n": 1}) == {"all": "map[id:a n:1]"}


def test_the_paths_that_are_read_are_known() -> None:
    composer = Composer({"b": ".spec.nodes", "c": {"a": ".id", "again": ".id"}, "d": "literal"})

    assert composer.fields_read() == ("id", "spec.nodes")


def test_reading_the_whole_resource_needs_every_field() -> None:
    assert Composer({"all": ".", "id": ".id"}).fields_read() is None


@pytest.mark.parametrize("text", ["plain", "a.b", "-", " .id"])
def test_text_that_does_not_begin_with_a_dot_is_a_literal(text: str) -> None:
    assert compile_leaf(text) == Literal(text)


def test_white_space_after_a_path_is_ignored() -> None:
    assert compile_leaf(".metadata.name ") == FieldPath(("metadata", "name"))


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (".a.b-c", 5), ("..", 2), (".a.", 3), (".1", 1), (".a b", 4), (".a | b", 4), (".a -", 4), (".a}} x", 3),
        (".a²", 3), (". a", 3), (".a .b", 4), (".a(", 3), ('.a "', 4),
    ],
)  # fmt: skip
def test_an_invalid_path_is_rejected_with_its_column(text: str, column: int) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_leaf(text)

    assert (caught.value.line, caught.value.column) == (1, column)
    assert "expected a path such as" in caught.value.problem


def test_any_text_with_braces_is_a_template() -> None:
    composed = data({"a": "{{.kind}}/{{.id}}", "b": ".{{.id}}", "c": {"d": "{{len .spec.nodes}}"}})

    assert composed == {"a": "Cluster/cls-123", "b": ".cls-123", "c": {"d": "2"}}


@pytest.mark.parametrize(
    ("names", "shown"), [({"displayName": "One", "name": "one"}, "One"), ({"name": "one"}, "one")]
)
def test_the_conditional_of_the_specification(names: Json, shown: str) -> None:
    template = "{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}"

    composed = compose({"display_name": template}, {"metadata": names})

    assert msgspec.json.decode(composed.data) == {"display_name": shown}
    assert composed.missing == ()


def test_a_template_with_a_missing_field_is_reported_by_name() -> None:
    composed = compose({"a": {"b": "owner: {{.metadata.owner}}!"}})

    assert msgspec.json.decode(composed.data) == {"a": {"b": "owner: !"}}
    assert composed.missing == ("a.b",)


def test_a_failing_template_is_empty_and_reported_with_its_reason() -> None:
    composed = compose({"a": "{{.kind}}: {{.id.x}}", "b": ".id"})

    assert msgspec.json.decode(composed.data) == {"a": "", "b": "cls-123"}
    assert composed.failed == (("a", "can't evaluate field x in a string (line 1, column 14 of the template)"),)


def test_an_invalid_template_is_rejected_with_its_position() -> None:
    with pytest.raises(TemplateError) as caught:
        compile_leaf("one\ntwo {{.id | shout}}")

    assert (caught.value.line, caught.value.column) == (2, 13)
    assert caught.value.problem == 'function "shout" not defined'


def test_a_path_to_a_value_beyond_the_size_limit_fails() -> None:
    composed = compose({"a": ".spec"}, {"spec": ["x" * 1000] * 2000})

    assert msgspec.json.decode(composed.data) == {"a": ""}
    assert composed.failed == (("a", "stopped: the text grew beyond 1048576 characters"),)


def test_the_paths_that_templates_read_are_known() -> None:
    composer = Composer({"a": '{{.metadata.name}} {{index .metadata.labels "region"}}', "b": ".metadata.labels"})

    assert composer.fields_read() == ("metadata.labels", "metadata.name")
    assert Composer({"a": "{{.}}"}).fields_read() is None


class TestNative:
    def native(self, message_data: MessageData, document: Json = CLUSTER) -> Composed:
        return Composer(message_data, types=DataTypes.NATIVE).compose(document, Reason.EXPIRED_NOT_READY)

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (".id", b'"cls-123"'),
            (".generation", b"2"),
            (".spec.paid", b"true"),
            (".spec.nodes", b"[1,2.5]"),
            (".spec", b'{"nodes":[1,2.5],"paid":true}'),
            (".metadata.note", b"null"),
        ],
    )
    def test_the_value_at_a_path_keeps_its_type(self, path: str, value: bytes) -> None:
        composed = self.native({"nested": {"value": path}})

        assert bytes(composed.data) == b'{"nested":{"value":' + value + b"}}"
        assert (composed.missing, composed.failed) == ((), ())

    def test_a_missing_value_is_null_and_reported_by_name(self) -> None:
        composed = self.native({"owner": ".owner_references", "id": ".id"})

        assert msgspec.json.decode(composed.data) == {"owner": None, "id": "cls-123"}
        assert composed.missing == ("owner",)

    def test_a_path_through_a_scalar_is_null_and_reported(self) -> None:
        composed = self.native({"deep": ".generation.deeper"})

        assert msgspec.json.decode(composed.data) == {"deep": None}
        assert composed.failed == (("deep", "can't evaluate field deeper in a number"),)

    def test_literals_and_templates_stay_strings(self) -> None:
        texts = {"version": "2", "generation": "{{.generation}}", "gone": "{{.gone}}", "bad": "{{.id.x}}"}

        composed = self.native(texts)

        assert msgspec.json.decode(composed.data) == {
            "version": "2",
            "generation": "2",
            "gone": "",
            "bad": "",
        }

    def test_the_paths_that_are_read_are_the_same(self) -> None:
        texts = {"a": ".spec.nodes", "b": "{{.id}}"}

        assert Composer(texts, types=DataTypes.NATIVE).fields_read() == Composer(texts).fields_read()

    @pytest.mark.parametrize("number", [2**63 - 1, 2**64, 10**30, -(2**63) - 1, 0.1, 1e300])
    def test_numbers_keep_their_value(self, number: float) -> None:
        composed = self.native({"number": ".number"}, {"number": number})

        assert msgspec.json.decode(composed.data) == {"number": number}

    def test_a_value_nested_too_deeply_is_malformed(self) -> None:
        document: Json = []
        for _ in range(100_000):  # beyond the recursion limits of every Python
            document = [document]

        with pytest.raises(Malformed, match=r"message_data: .*recursion"):
            self.native({"deep": ".deep"}, {"deep": document})


class TestReason:
    @pytest.mark.parametrize("reason", Reason)
    def test_the_default_data_has_type_id_and_reason(self, reason: Reason) -> None:
        composed = compose(reason_data("clusters"), CLUSTER, reason)

        expected = b"generation-changed" if reason is Reason.GENERATION_CHANGED else b"backoff-expired"
        assert (
            bytes(composed.data) == b'{"resourceType":"clusters","resourceId":"cls-123","reason":"%b"}' % expected
        )
        assert (composed.missing, composed.failed) == ((), ())

    def test_the_default_data_reads_only_the_id(self) -> None:
        assert Composer(reason_data("clusters")).fields_read() == ("id",)

    def test_a_plural_that_begins_with_a_dot_is_not_a_path(self) -> None:
        assert data(reason_data(".id"))["resourceType"] == ".id"  # type: ignore[index,call-overload] # an object

    def test_a_member_called_reason_can_still_be_read(self) -> None:
        resource: Json = {"id": "a", "reason": "its own"}
        message_data: MessageData = {"path": ".reason", "template": "{{.reason}}", "literal": "reason"}

        composed = data({**message_data, **reason_data("clusters")}, resource, Reason.GENERATION_CHANGED)

        assert composed == {
            "path": "its own",
            "template": "its own",
            "literal": "reason",
            "resourceType": "clusters",
            "resourceId": "a",
            "reason": "generation-changed",
        }

    def test_a_reason_may_be_anywhere_in_the_data(self) -> None:
        why = ByReason({Reason.PULSE_REQUESTED: "asked"}, otherwise="due")

        composer = Composer({"id": ".id", "why": {"deep": {"down": why}}})

        texts = {
            reason: msgspec.json.decode(composer.compose(CLUSTER, reason).data)["why"]["deep"]["down"]
            for reason in Reason
        }
        assert texts == dict.fromkeys(Reason, "due") | {Reason.PULSE_REQUESTED: "asked"}
        assert composer.fields_read() == ("id",)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@given(json_values, st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_a_path_equals_the_template_with_that_path(document: Json, names: list[str]) -> None:
    path = "." + ".".join(names)

    bare, template = (compose({"x": text}, document) for text in (path, "{{" + path + "}}"))

    assert (bare.data, bare.missing) == (template.data, template.missing)
    assert [reason for _, reason in bare.failed] == [
        reason.partition(" (line")[0] for _, reason in template.failed
    ]


@given(json_values, st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_composing_never_raises_and_always_returns_strings(document: Json, names: list[str]) -> None:
    composed = compose({"x": "." + ".".join(names)}, document)

    assert isinstance(msgspec.json.decode(composed.data)["x"], str)


@given(json_values, st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_a_native_path_is_the_value_or_null(document: Json, names: list[str]) -> None:
    value = document
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None

    message_data = {"x": "." + ".".join(names)}
    native = Composer(message_data, types=DataTypes.NATIVE).compose(document, Reason.EXPIRED_READY)
    text = compose(message_data, document)

    assert msgspec.json.decode(native.data) == {"x": value}
    assert (native.missing, native.failed) == (text.missing, text.failed)


@given(st.text())
def test_every_string_compiles_or_reports_a_position(text: str) -> None:
    try:
        compile_leaf(text)
    except TemplateError as error:
        assert error.line >= 1
        assert error.column >= 1
        assert error.problem in str(error)


@given(json_values, st.sampled_from(Reason), st.sampled_from(Reason))
def test_data_without_the_reason_is_the_same_for_every_reason(document: Json, one: Reason, other: Reason) -> None:
    composer = Composer({"a": ".a", "b": {"c": "{{.b}}", "d": "literal"}})

    assert composer.compose(document, one) == composer.compose(document, other)


@given(json_values, st.sampled_from(Reason), st.text())
def test_the_reason_changes_nothing_else_in_the_data(document: Json, reason: Reason, text: str) -> None:
    plain: MessageData = {"a": ".a", "b": {"c": "{{.b}}"}}

    composed = compose({**plain, "why": ByReason({reason: text}, otherwise="")}, document, reason)

    without = compose(plain, document, reason)
    assert msgspec.json.decode(composed.data) == msgspec.json.decode(without.data) | {"why": text}
    assert (composed.missing, composed.failed) == (without.missing, without.failed)


LEAVES = (
    "a literal",
    ".a",
    ".b.a",
    ".c.b.a",
    ".",
    "{{.a.b}}",
    "{{if .a}}{{.b.c}}{{else}}{{.c}}{{end}}",
    "{{range $key, $value := .a}}{{$key}}={{$value}} {{end}}",
    '{{index .a "b"}}',
    "{{index .b 0}}",
    "{{with .a.b}}{{.c}}{{else}}{{$.b}}{{end}}",
    '{{printf "%v %T" .a .b.c}}',
    "{{len .c}}",
    '{{define "inner"}}{{.b}}{{end}}{{template "inner" .a}}',
)
message_datas = st.dictionaries(
    st.sampled_from("xyz"),
    st.sampled_from(LEAVES) | st.dictionaries(st.sampled_from("xyz"), st.sampled_from(LEAVES), max_size=2),
    max_size=3,
)
BAD_TOKENS = (
    b"\xff",
    b"\\x",
    b"\\ud800",
    b"\x01",
    b"01",
    b"nul",
    b"[" * 2000,
    b'"',
    b"{",
    b",",
    b"1e999",
    b"\xc3\xa9",
)


def compose_whole(composer: Composer, encoded: bytes, reason: Reason) -> Composed | None:
    """Compose from the whole document; None if it is malformed."""
    try:
        return composer.compose(msgspec.json.decode(encoded), reason)
    except DECODE_ERRORS:
        return None


def compose_partly(composer: Composer, encoded: bytes, reason: Reason) -> Composed | None:
    """Compose from the members that are read; None if the document is malformed."""
    try:
        return composer.compose(composer.decode(msgspec.Raw(encoded)), reason)
    except Malformed:
        return None


class TestDecoding:
    def test_only_the_members_that_are_read_are_decoded(self) -> None:
        composer = Composer({"region": ".metadata.labels.region", "name": "{{.metadata.name}}"})

        decoded = composer.decode(msgspec.Raw(msgspec.json.encode(CLUSTER)))

        assert decoded == {"metadata": {"labels": {"region": "us-east"}, "name": "one"}}

    def test_a_null_is_no_reason_to_decode_everything(self) -> None:
        decoded = Composer({"owner": ".owner.id"}).decode(msgspec.Raw(b'{"owner": null, "id": "cls-1"}'))

        assert decoded == {"owner": None}

    @given(message_datas, json_values, st.sampled_from(Reason))
    def test_events_are_those_composed_from_the_whole_document(
        self, message_data: MessageData, document: Json, reason: Reason
    ) -> None:
        composer, encoded = Composer(message_data), msgspec.json.encode(document)

        assert compose_partly(composer, encoded, reason) == compose_whole(composer, encoded, reason)

    @given(message_datas, json_values, st.data())
    def test_a_malformed_document_is_malformed_wherever_it_is_broken(
        self, message_data: MessageData, document: Json, draw: st.DataObject
    ) -> None:
        composer, encoded = Composer(message_data), msgspec.json.encode({"rest": document, "a": document})
        at = draw.draw(st.integers(0, len(encoded)))
        broken = encoded[:at] + draw.draw(st.sampled_from(BAD_TOKENS)) + encoded[at:]

        partly, whole = (way(composer, broken, Reason.EXPIRED_READY) for way in (compose_partly, compose_whole))

        is_number_out_of_range = b"1e999" in broken and partly is not None
        assert partly == whole or is_number_out_of_range

    def test_a_number_beyond_float64_is_malformed_only_where_it_is_read(self) -> None:
        document = msgspec.Raw(b'{"id": "cls-1", "spec": {"limit": 1e999}}')

        assert Composer({"id": ".id"}).decode(document) == {"id": "cls-1"}
        with pytest.raises(Malformed, match="out of range"):
            Composer({"limit": ".spec.limit"}).decode(document)
