"""Types of settings that Kubernetes resources need: lists, labels, optional sections, values with JSON's types."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.config_tree import JsonType, MappingNode, ScalarNode, locate
from sentinel.runtime.settings.report import Loaded, Origin, Source
from sentinel.runtime.settings.schema import FlatMapping, TextList, section
from sentinel.runtime.settings.sources import from_object
from sentinel.runtime.settings.validation import Validation
from sentinel.runtime.settings.yaml_file import parse, parse_documents

FILE = Origin(Source.FILE, "f.yaml")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    key: str = "token"


class Example(msgspec.Struct, frozen=True, kw_only=True):
    labels: Annotated[Mapping[str, str], FlatMapping("a mapping of labels")] = msgspec.field(default_factory=dict)
    values: Annotated[tuple[str, ...], TextList("a list of values")] = ()
    reference: Reference | None = None
    interval: timedelta = timedelta(seconds=5)
    checks: bool = True
    size: Annotated[int, field_types.integer(1, 1000)] = 100
    rate: Annotated[float | None, field_types.number(0.5, 10)] = None
    password: Secret = Secret("")


def load(text: str) -> Loaded[Example]:
    (document,) = parse_documents(text, FILE)
    return loader.load(Example, document=document, environ={})


def valid(text: str) -> Example:
    loaded = load(text)
    assert loaded.problems == ()
    assert loaded.settings is not None
    return loaded.settings


def problems(text: str) -> list[str]:
    return [str(problem) for problem in load(text).problems]


def typed_problems(text: str) -> list[str]:
    """The problems of a document whose values have JSON's types."""
    (document,) = parse_documents(text, FILE)
    assert document.root is not None
    validation = Validation(environ={}, has_json_types=True)
    section(Example).read(document.root, "", document.at, validation)
    return [str(problem) for problem in validation.problems]


class TestTypes:
    def test_labels_may_be_empty_and_have_dots(self) -> None:
        assert valid("labels: {app.kubernetes.io/name: '', region: us}").labels == {
            "app.kubernetes.io/name": "",
            "region": "us",
        }

    def test_each_label_and_a_whole_list_are_effective_settings(self) -> None:
        entries = load("{labels: {region: us, env: dev}, values: [a, '']}").entries

        assert [(entry.key, entry.value) for entry in entries[:3]] == [
            ("labels.region", "us"),
            ("labels.env", "dev"),
            ("values", '["a",""]'),
        ]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("labels: [a]", "f.yaml:1:9: labels: expected a mapping of labels, got a list"),
            ("labels:", "f.yaml:1:8: labels: expected a mapping of labels, got nothing"),
            ("labels:\n  a: {b: c}", "f.yaml:2:6: labels.a: expected text, got a mapping"),
            ("labels:\n  a:", "f.yaml:2:5: labels.a: expected text, got nothing"),
            ("values: a", 'f.yaml:1:9: values: expected a list of values, got "a"'),
            ("values:\n- a\n- [b]", "f.yaml:3:3: values[1]: expected text, got a list"),
        ],
    )
    def test_another_shape_is_a_problem_at_its_position(self, text: str, expected: str) -> None:
        assert problems(text) == [expected]

    @pytest.mark.parametrize("text", ["{}", "reference:", "reference: null"])
    def test_an_optional_section_may_be_absent(self, text: str) -> None:
        assert valid(text).reference is None

    def test_an_optional_section_that_is_written_has_its_rules(self) -> None:
        assert valid("reference: {name: a}").reference == Reference(name="a")
        assert problems("reference: {key: a}") == [
            "f.yaml:1:1: reference.name: required, but missing; expected text"
        ]
        assert problems("reference: {name: a, kye: b}") == [
            "f.yaml:1:22: reference.kye: unknown key; did you mean reference.key?"
        ]

    def test_a_flag_replaces_lists_and_labels(self) -> None:
        loaded = loader.load(Example, environ={}, sets=["values=[a, b]", "labels={region: us}"])

        assert loaded.settings is not None
        assert loaded.settings.values == ("a", "b")
        assert loaded.settings.labels == {"region": "us"}


class TestJsonTypes:
    def test_values_of_the_right_type_are_accepted(self) -> None:
        assert typed_problems("{interval: 5s, checks: yes, size: 7, rate: 1, labels: {a: '1'}, values: [a]}") == []

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("labels: {a: 1}", "labels.a: expected text, got a number; quote it if it is text"),
            ("labels: {a: yes}", "labels.a: expected text, got a boolean; quote it if it is text"),
            ("values: [1.5]", "values[0]: expected text, got a number; quote it if it is text"),
            ("interval: 0", "interval: expected a duration such as 5s, got a number; quote it if it is text"),
            ('checks: "true"', "checks: expected true or false, got text; write it without quotes"),
            ('size: "7"', "size: expected a whole number from 1 to 1000, got text; write it without quotes"),
            ("rate: '7'", "rate: expected a number from 0.5 to 10, got text; write it without quotes"),
            ("checks: maybe", 'checks: expected true or false, got "maybe"'),
            ("password: 1234", "password: expected a secret, got a number; quote it if it is text"),
        ],
    )
    def test_values_of_another_type_are_problems(self, text: str, problem: str) -> None:
        (found,) = typed_problems(text)

        assert found.partition(": ")[2] == problem

    def test_elsewhere_quotes_do_not_matter(self) -> None:
        settings = valid('{labels: {a: 1}, checks: "true", size: "7"}')

        assert (settings.labels, settings.checks, settings.size) == ({"a": "1"}, True, 7)

    # PyYAML leaves some texts without quotes that kubectl reads as another type, such as y, 1e3 and 0o17.
    @given(
        st.one_of(
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.booleans(),
            st.text().filter(lambda text: _is_string_for_kubectl(text)),
        )
    )
    def test_a_value_has_the_same_type_as_an_object_and_as_yaml(self, value: Json) -> None:
        expected = {bool: JsonType.BOOLEAN, str: JsonType.STRING}.get(type(value), JsonType.NUMBER)
        root = from_object({"value": value}).root
        written, _ = parse(yaml.safe_dump({"value": value}, allow_unicode=False), FILE)

        assert _type_of(root) is expected
        assert _type_of(written) is expected

    @pytest.mark.parametrize("text", ["y", "Y", "n", "N", "yes", "Off"])
    def test_booleans_of_yaml_1_1_are_booleans(self, text: str) -> None:
        assert ScalarNode(text, FILE).json_type is JsonType.BOOLEAN

    @pytest.mark.parametrize(
        "text", ["0x1F", "0o17", "017", "0b1", "1_000", "+1", ".5", "1.", "1e3", "-.inf", ".nan"]
    )
    def test_numbers_in_every_notation_of_yaml_are_numbers(self, text: str) -> None:
        assert ScalarNode(text, FILE).json_type is JsonType.NUMBER

    @pytest.mark.parametrize("text", ["5s", "1.2.3", "us-east", "1-2", "_1", ".", "-", "0x", "2024-01-01", "1:30"])
    def test_other_plain_texts_are_strings(self, text: str) -> None:
        assert ScalarNode(text, FILE).json_type is JsonType.STRING


def _is_string_for_kubectl(text: str) -> bool:
    node = ScalarNode(text, FILE)
    return node.is_null or node.json_type is JsonType.STRING


def _type_of(root: object) -> JsonType:
    assert isinstance(root, MappingNode)
    member = root.get("value")
    assert member is not None
    assert isinstance(member.value, ScalarNode)
    return member.value.json_type


class TestLocate:
    TREE, _ = parse("spec:\n  list:\n  - a\n  - key: b\n  dots.and/slash: c\n", FILE)

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("spec", 2),
            ("spec.list[0]", 3),
            ("spec.list[1].key", 4),
            ("spec.dots.and/slash", 5),
            ("spec.list[1].missing.deep", 4),
            ("spec.list[7]", 3),
            ("other", 1),
            ("", 1),
        ],
    )
    def test_the_closest_value_around_a_path_is_found(self, path: str, line: int) -> None:
        assert self.TREE is not None
        assert locate(self.TREE, path).line == line


class TestDocuments:
    def test_each_document_keeps_its_positions(self) -> None:
        first, second, third = parse_documents("a: 1\n---\n# nothing\n---\nb: 2\n", FILE)

        assert [[member.key for member in each.root.members] for each in (first, second, third) if each.root] == [
            ["a"],
            [],
            ["b"],
        ]
        assert (first.at.line, third.at.line) == (1, 5)

    def test_anchors_belong_to_one_document(self) -> None:
        *_, last = parse_documents("a: &x 1\n---\nb: *x\n", FILE)

        assert last.root is None
        assert last.problems[0].line == 3

    def test_a_syntax_error_keeps_the_documents_before_it(self) -> None:
        good, bad = parse_documents("a: 1\n---\nb: [\n", FILE)

        assert good.problems == ()
        assert (bad.root, bad.problems[0].line) == (None, 3)

    def test_a_document_that_is_no_mapping_is_a_problem(self) -> None:
        text, listed = parse_documents("hunter2\n---\n- a\n", FILE)

        assert [problem.message for problem in (*text.problems, *listed.problems)] == [
            "expected a mapping of settings, got text",
            "expected a mapping of settings, got a list",
        ]

    def test_problems_belong_to_their_document(self) -> None:
        first, second = parse_documents("a: 1\na: 2\n---\nb: !tag x\n", FILE)

        assert [problem.line for problem in first.problems] == [2]
        assert [problem.line for problem in second.problems] == [4]

    def test_a_control_character_is_a_problem(self) -> None:
        (document,) = parse_documents("a: 1\n---\nb: \x07\n", FILE)

        assert (document.root, document.problems[0].line, document.problems[0].column) == (None, 3, 4)

    @given(st.lists(st.dictionaries(st.text(), st.text())))
    def test_a_stream_is_the_documents_that_were_written(self, documents: list[dict[str, str]]) -> None:
        found = parse_documents(yaml.safe_dump_all(documents, allow_unicode=False), FILE)

        assert [{m.key: m.value.text for m in each.root.members} for each in found if each.root] == documents  # type: ignore[union-attr]  # all are texts


def test_a_problem_of_an_object_without_a_name_has_no_suffix() -> None:
    named, bare = (
        loader.load(Example, document=from_object({"size": 0}, *name), environ={}).problems[0].message
        for name in (["thing/a"], [])
    )

    assert named == f"{bare} (object thing/a)"
