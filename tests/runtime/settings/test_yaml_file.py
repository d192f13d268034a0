"""YAML is read into strings with positions, and problems have their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node, ScalarNode
from sentinel.runtime.settings.report import Origin, SettingsProblem, Source
from sentinel.runtime.settings.yaml_file import MAX_FILE_SIZE, parse, parse_file

FILE = Origin(Source.FILE, "f.yaml")


def read(text: str) -> Node:
    root, problems = parse(text, FILE)
    assert root is not None
    assert problems == ()
    return root


def problems_of(text: str) -> list[tuple[int | None, int | None, str, str]]:
    return [(p.line, p.column, p.field, p.message) for p in parse(text, FILE)[1]]


def value(mapping: Node, key: str) -> Node:
    assert isinstance(mapping, MappingNode)
    member = mapping.get(key)
    assert member is not None
    return member.value


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def write_file(content: bytes) -> Path:
        path = tmp_path / "f.yaml"
        path.write_bytes(content)
        return path

    return write_file


Write = Callable[[bytes], Path]


def only_problem(path: Path) -> SettingsProblem:
    parsed = parse_file(path)
    assert parsed.root is None
    (problem,) = parsed.problems
    return problem


@pytest.mark.parametrize("text", ["010", "1:30", "0x1F", "no", "1_000", "2024-01-01", "1e3", ".inf", "=", "0.10"])
def test_a_scalar_keeps_its_text(text: str) -> None:
    scalar = value(read(f"key: {text}"), "key")

    assert isinstance(scalar, ScalarNode)
    assert scalar.text == text


@pytest.mark.parametrize(
    ("text", "is_null"),
    [
        ("", True),
        ("~", True),
        ("null", True),
        ("!!null x", False),
        ("''", False),
        ("'null'", False),
        ("!!str null", False),
    ],
)
def test_only_an_unquoted_null_is_null(text: str, is_null: bool) -> None:
    scalar = value(read(f"key: {text}"), "key")

    assert isinstance(scalar, ScalarNode)
    assert scalar.is_null is is_null


def test_keys_and_values_have_positions() -> None:
    mapping = read("# comment\na:\n  - é: x\n    b: 'y'\n")

    items = value(mapping, "a")
    assert isinstance(items, ListNode)
    inner = items.items[0]
    assert isinstance(inner, MappingNode)
    member = inner.get("b")
    assert member is not None
    assert (member.at.line, member.at.column) == (4, 5)
    assert (member.value.at.line, member.value.at.column) == (4, 8)


def test_a_duplicate_key_is_reported_at_its_second_position() -> None:
    problems = problems_of("a:\n  - b: 1\n    c: 2\n    b: 3\n")

    assert problems == [(4, 5, "a[0].b", "duplicate key; expected it once, got it first on line 2")]


def test_a_second_document_is_rejected_and_the_first_is_read() -> None:
    root, problems = parse("a: 1\n---\n: : broken", FILE)

    assert isinstance(root, MappingNode)
    assert [(p.line, p.column, p.field) for p in problems] == [(2, 1, "")]
    assert "second" in problems[0].message


def test_a_document_between_markers_is_one_document() -> None:
    assert isinstance(read("---\na: 1\n...\n"), MappingNode)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: b: c", 1, 5),
        ("a: 1\nb: [1,\n", 2, 7),
        ("a: 1\nb: 'x\nc: 1\n", 2, 4),
        ("a: 1\n\tb: 2", 2, 1),
        ("a: @x", 1, 4),
        ("a: *nowhere", 1, 4),
        ("a: &x [*x]", 1, 8),
        ("a: é\x07", 1, 5),
        ("a: 1\nb: x\x00y", 2, 5),
    ],
)
def test_a_syntax_error_has_a_position_and_no_field(text: str, line: int, column: int) -> None:
    root, problems = parse(text, FILE)

    assert root is None
    assert [(p.line, p.column, p.field) for p in problems] == [(line, column, "")]
    assert problems[0].message


@pytest.mark.parametrize(
    "text", ["p: *hunter2", "p: !hunter2!x y", "p: !hunter2 x", "p: &hunter2", "hunter2: [", "p: 'hunter2"]
)
def test_a_message_never_contains_the_text(text: str) -> None:
    assert not any("hunter2" in message for _, _, _, message in problems_of(text))


def test_explicit_keys_override_merged_ones() -> None:
    mapping = read("base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  b: 3\n  c: *base\n")

    use = value(mapping, "use")
    assert {key: getattr(value(use, key), "text", None) for key in ("a", "b", "c")} == {
        "a": "1",
        "b": "3",
        "c": None,
    }


def test_merging_anything_but_a_mapping_is_a_problem() -> None:
    assert problems_of("<<: [{a: 1}, x]") == [(1, 14, "<<", 'expected a mapping to merge, got "x"')]


def test_a_key_that_is_not_text_is_a_problem() -> None:
    assert problems_of("a:\n  ? [x]\n  : 1\n  ~: 2\n") == [
        (2, 5, "a", "expected a key that is text, got a list"),
        (4, 3, "a", "expected a key, got nothing"),
    ]


def test_a_tag_is_reported_with_its_field() -> None:
    ((line, column, field, _),) = problems_of("a:\n- !python/object:x {}\n")

    assert (line, column, field) == (2, 3, "a[0]")


def test_nested_aliases_are_limited() -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 40)]

    root, problems = parse("l0: &l0 x\n" + "\n".join(levels), FILE)

    assert root is None
    assert "values" in problems[0].message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_rejected(opening: str) -> None:
    root, problems = parse(opening * 20_000, FILE)

    assert root is None
    assert len(problems) == 1


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"

    problem = only_problem(path)

    assert problem == SettingsProblem(str(path), 1, 1, "", "cannot be read: no such file or directory")


def test_a_directory_is_a_problem(tmp_path: Path) -> None:
    assert only_problem(tmp_path).message == "cannot be read: is a directory"


def test_an_impossible_path_is_a_problem() -> None:
    assert "cannot be read" in only_problem(Path("a\0b")).message


def test_a_byte_that_is_not_utf8_is_reported_at_its_position(write: Write) -> None:
    problem = only_problem(write("a: é\nb: ".encode() + b"\xff\n"))

    assert (problem.line, problem.column) == (2, 4)


def test_a_byte_order_mark_is_ignored(write: Write) -> None:
    parsed = parse_file(write(b"\xef\xbb\xbfa: 1\n"))

    assert parsed.root is not None
    assert parsed.root.get("a") is not None


def test_a_file_that_is_too_large_is_a_problem(write: Write) -> None:
    assert "1 MiB" in only_problem(write(b"#" * (MAX_FILE_SIZE + 1))).message


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null\n"])
def test_an_empty_file_is_an_empty_mapping(write: Write, text: str) -> None:
    parsed = parse_file(write(text.encode()))

    assert parsed.problems == ()
    assert parsed.root is not None
    assert parsed.root.members == ()


@pytest.mark.parametrize(("text", "got"), [("- a\n", "a list"), ("token\n", "text")])
def test_a_file_that_is_not_a_mapping_is_a_problem(write: Write, text: str, got: str) -> None:
    assert only_problem(write(text.encode())).message == f"expected a mapping of settings, got {got}"
