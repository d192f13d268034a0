"""Each row of the schema: a good document and bad ones, all built from the table."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from sentinel.core import kdl
from sentinel.core.proxy.problem import Problem, Severity
from sentinel.core.proxy.schema import CURRENT, Row
from sentinel.core.proxy.schema.types import Choice
from tests.core.proxy import documents
from tests.core.proxy.documents import Path, check, errors


def rows(is_chosen: Callable[[Row], bool]) -> pytest.MarkDecorator:
    """Run a test for each row that the proxy reads and that is chosen."""
    chosen = [
        pytest.param(path, row, id=".".join(path))
        for path, row in documents.unique_rows()
        if row.is_read and is_chosen(row)
    ]
    return pytest.mark.parametrize(("path", "row"), chosen)


HARMLESS = {"unused", "deprecated"}


def at(problems: list[Problem], line: int) -> list[tuple[str, str]]:
    return [(problem.severity.value, problem.code) for problem in problems if problem.line == line]


def line_of(text: str, name: str) -> int:
    """Return the last line whose node has this name: that is where `documents` puts it."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.split()[0].strip('"') == name]
    return lines[-1]


@rows(lambda row: True)
def test_a_good_document_of_the_row_has_no_problem(path: Path, row: Row) -> None:
    text = documents.document(path, documents.node(row))

    problems = [problem for problem in check(text) if problem.code not in HARMLESS]

    assert problems == [], text


@rows(lambda row: bool(row.arguments or row.properties))
def test_a_wrong_value_of_the_row_is_a_problem(path: Path, row: Row) -> None:
    good = documents.node(row)
    for index, entry in enumerate(row.arguments):
        arguments = (*good.arguments[:index], documents.bad_value(entry.type), *good.arguments[index + 1 :])
        text = documents.document(path, msgspec.structs.replace(good, arguments=arguments))

        found = at(check(text), line_of(text, row.name))

        is_silent = isinstance(entry.type, Choice) and entry.type.fallback is not None
        expected = "unknown-value" if isinstance(entry.type, Choice) else "wrong-type"
        assert (("warning", "ignored-value") if is_silent else ("error", expected)) in found, text
    for entry in row.properties:
        bad = kdl.Property(entry.name, documents.bad_value(entry.type))
        text = documents.document(path, msgspec.structs.replace(good, properties=(bad,)))

        assert {code for severity, code in at(check(text), line_of(text, row.name)) if severity == "error"} & {
            "wrong-type",
            "unknown-value",
        }, text


@rows(lambda row: row.value_name is not None or any(entry.is_required for entry in row.arguments))
def test_a_row_without_its_value_is_an_error(path: Path, row: Row) -> None:
    bare = msgspec.structs.replace(documents.node(row), arguments=())
    text = documents.document(path, bare)

    assert ("error", "missing") in at(check(text), line_of(text, row.name)), text


@rows(lambda row: bool(row.rows) and not row.is_open)
def test_an_unknown_name_in_the_block_is_what_the_row_says(path: Path, row: Row) -> None:
    good = documents.node(row)
    text = documents.document(
        path, msgspec.structs.replace(good, children=(*good.children, kdl.Node("no-such-name")))
    )

    assert at(check(text), line_of(text, "no-such-name")) == [(row.unknown.value, "unknown-key")], text


@rows(lambda row: row.is_required)
def test_a_required_row_that_is_missing_is_an_error_of_its_parent(path: Path, row: Row) -> None:
    if len(path) == 1:
        text = "".join(f"{name}\n" for name in ("system", "listeners") if name != row.name)
        assert (1, "missing") in [(problem.line, problem.code) for problem in errors(check(text))]
        return
    parent_row = documents.rows_on(path)[-2]
    parent = documents.node(parent_row)
    children = tuple(each for each in parent.children if each.name != row.name)
    text = documents.document(path[:-1], msgspec.structs.replace(parent, children=children))

    assert ("error", "missing") in at(check(text), line_of(text, parent_row.name)), text


@pytest.mark.parametrize(
    ("path", "row"),
    [pytest.param(path, row, id=".".join(path)) for path, row in documents.unique_rows() if not row.is_read],
)
def test_a_row_that_the_proxy_does_not_read_is_a_warning(path: Path, row: Row) -> None:
    text = documents.document(path, kdl.Node(row.name, (kdl.Value(3),)))

    (problem,) = [problem for problem in check(text) if problem.line == line_of(text, row.name)]

    assert (problem.severity, problem.code) == (Severity.WARNING, "ignored-key")
    assert problem.suggestion is not None
    assert (row.instead or row.advice) in problem.suggestion


def test_every_row_says_what_it_is() -> None:
    assert [path for path, row in CURRENT.walk() if not row.description.endswith(".")] == []


def test_no_block_has_two_rows_of_one_name() -> None:
    assert [path for path, row in CURRENT.walk() if len(row.children) != len(row.rows)] == []


def test_a_default_is_a_value_that_the_row_accepts() -> None:
    wrong = [
        path
        for path, row in CURRENT.walk()
        if row.default is not None and row.arguments[0].type.fault(row.default) is not None
    ]

    assert wrong == []
