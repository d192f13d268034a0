"""Templates beside what the golden table shows: where they fail, what they lack, and what they never show."""

from __future__ import annotations

import pytest

from sentinel.core.gotemplate import MissingField, RenderError, Template, TemplateError
from sentinel.core.json import Json

CLUSTER: Json = {
    "id": "cls-123",
    "note": None,
    "secret": "hunter2",
    "count": 5,
    "beyond": 2**63,
    "immense": 10**400,
    "labels": {"region": "us-east"},
    "nodes": [1, None],
}


def render(source: str, document: Json = CLUSTER) -> str:
    return Template(source).render(document)


def lacking(source: str) -> str:
    """The text of a template that prints something absent."""
    with pytest.raises(MissingField) as caught:
        render(source)
    return caught.value.text


@pytest.mark.parametrize(
    ("source", "line", "column", "problem"),
    [
        ("{{.id", 1, 1, "unclosed action"),
        ("a\nb {{.id\n", 2, 3, "unclosed action"),
        ("{{.id }", 1, 7, 'unexpected "}" in operand'),
        ("{{.id}}{{foo}}", 1, 10, 'function "foo" not defined'),
        ("{{ .id | foo }}", 1, 10, 'function "foo" not defined'),
        ("a\n{{if .id}}\n{{$x}}{{end}}", 3, 3, 'undefined variable "$x"'),
        ("{{if .id}}a", 1, 12, "unexpected EOF"),
        ("é{{end}}", 1, 4, "unexpected {{end}}"),
        ("{{.a-b}}", 1, 5, "bad character U+002D '-'"),
        ("{{(.a}}", 1, 6, "unclosed left paren"),
        ("{{print \"a}}", 1, 9, "unterminated quoted string"),
        ("{{/* a", 1, 1, "unclosed comment"),
        ("{{1 | 2}}", 1, 7, "non executable command in pipeline stage 2"),
        ("{{print 1 99999999999999999999}}", 1, 11, 'integer overflow: "99999999999999999999"'),
        ("{{\x07}}", 1, 3, "unrecognized character in action: U+0007"),
        ("{{call .id}}", 1, 3, 'function "call" is not available: no part of a document can be called'),
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused_with_its_place(source: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(source)

    assert (caught.value.line, caught.value.column, caught.value.problem) == (line, column, problem)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{.id.x}}", "can't evaluate field x in a string (line 1, column 3 of the template)"),
        ("a\n {{.note.x}}", "can't evaluate field x in null (line 2, column 4 of the template)"),
        ("{{with .count}}{{.x}}{{end}}", "can't evaluate field x in a number (line 1, column 18 of the template)"),
        ("{{(eq 1 1).x}}", "can't evaluate field x in a boolean (line 1, column 11 of the template)"),
        ("{{.nodes.x}}", "can't evaluate field x in a list (line 1, column 3 of the template)"),
        ("{{lt .count \"a\"}}", "error calling lt: incompatible types for comparison: int64 and string "
         "(line 1, column 3 of the template)"),
        ("{{eq .labels .nodes}}", "error calling eq: non-comparable types: map[string]interface {} and "
         "[]interface {} (line 1, column 3 of the template)"),
        ("{{index .nodes 7}}", "error calling index: index out of range: there are 2 "
         "(line 1, column 3 of the template)"),
        ("{{len .count}}", "error calling len: len of type int64 (line 1, column 3 of the template)"),
        ("{{template \"t\"}}", "template \"t\" not defined (line 1, column 12 of the template)"),
        ("{{range 1.5}}{{end}}", "range can't iterate over a value of type float64 "
         "(line 1, column 9 of the template)"),
        ("{{printf \"%p\" .nodes}}", "error calling printf: %p asks for an address, and a value of a document has "
         "none (line 1, column 3 of the template)"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_fails_with_the_reason_and_the_place(source: str, reason: str) -> None:
    with pytest.raises(RenderError) as caught:
        render(source)

    assert str(caught.value) == reason


@pytest.mark.parametrize(
    "source",
    [
        "{{.secret.x}}",
        "{{range .secret}}{{end}}",
        "{{lt .secret 1}}",
        "{{eq .secret 1}}",
        "{{slice .secret 99}}",
        "{{index .secret .secret}}",
        "{{index .labels .secret .secret}}",
        "{{.secret 1}}",
        "{{$x := .secret}}{{$x 1}}",
        "{{printf .count .secret}}",
    ],
)
def test_a_failure_never_shows_a_value_of_the_document(source: str) -> None:
    with pytest.raises(RenderError) as caught:
        render(source)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{.owner}}", ""),
        ("id={{.id}} owner={{.owner}}", "id=cls-123 owner="),
        ("{{.owner.name.first}}", ""),
        ("{{$x := .owner}}{{$x}}", ""),
        ("{{index .labels \"zone\"}}", ""),
        ("{{print .owner}}", "<nil>"),
        ("{{printf \"%v\" .owner}}", "<nil>"),
        ("{{.owner | html}}", "&lt;no value&gt;"),
        ("{{or .owner .other}}", ""),
        ("{{.note}}{{.owner}}", ""),
        ("{{.owner.name 1}}", ""),
    ],
)  # fmt: skip
def test_something_absent_that_is_printed_is_told_beside_the_text(source: str, text: str) -> None:
    assert lacking(source) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{if .owner}}a{{else}}b{{end}}", "b"),
        ("{{with .owner}}a{{else}}b{{end}}", "b"),
        ("{{range .owner}}a{{else}}b{{end}}", "b"),
        ("{{or .owner \"nobody\"}}", "nobody"),
        ("{{eq .owner nil}}", "true"),
        ("{{not .owner}}", "true"),
        ("{{$x := .owner}}", ""),
        ("{{and .id (not .owner)}}", "true"),
    ],
)  # fmt: skip
def test_testing_for_something_absent_is_meant(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize("source", ["{{.note}}", "{{index .nodes 1}}", "{{range .nodes}}{{.}}{{break}}{{end}}"])
def test_a_null_is_not_absent(source: str) -> None:
    render(source)


def test_integers_beyond_int64_are_floats() -> None:
    text = render('{{.beyond}} {{printf "%T" .beyond}} {{.immense}} {{printf "%08.1f|% v" .immense .immense}}')

    assert text == "9.223372036854776e+18 float64 +Inf     +Inf| Inf"


def test_a_character_that_was_cut_in_two_is_whole_again_when_its_halves_meet() -> None:
    assert render('{{slice "é" 0 1}}{{slice "é" 1}}') == "é"
    assert render('{{slice "é" 0 1}}|{{slice "日" 1}}') == "\ufffd|\ufffd\ufffd"


def test_a_compiled_template_keeps_nothing_of_one_document_for_the_next() -> None:
    template = Template("{{$x := .id}}{{range .nodes}}{{$x}}{{end}}")

    assert [template.render({"id": name, "nodes": [1, 2]}) for name in "ab"] == ["aa", "bb"]
