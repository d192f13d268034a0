"""Templates: positions of errors, missing fields, and no values in messages. The golden table has the rest."""

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
def test_an_invalid_template_is_rejected_with_its_position(
    source: str, line: int, column: int, problem: str
) -> None:
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
        ("{{index .nodes 7}}", "error calling index: index out of range: the length is 2 "
         "(line 1, column 3 of the template)"),
        ("{{len .count}}", "error calling len: len of type int64 (line 1, column 3 of the template)"),
        ("{{template \"t\"}}", "template \"t\" not defined (line 1, column 12 of the template)"),
        ("{{range 1.5}}{{end}}", "range can't iterate over a value of type float64 "
         "(line 1, column 9 of the template)"),
        ("{{printf \"%p\" .nodes}}", "error calling printf: %p prints an address, and values of a document have "
         "none (line 1, column 3 of the template)"),
    ],
)  # fmt: skip
def test_a_render_error_has_its_reason_and_position(source: str, reason: str) -> None:
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
def test_a_render_error_never_shows_a_value(source: str) -> None:
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
def test_printing_a_missing_field_is_reported_with_the_text(source: str, text: str) -> None:
    with pytest.raises(MissingField) as caught:
        render(source)

    assert caught.value.text == text


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
def test_testing_for_a_missing_field_is_not_reported(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize("source", ["{{.note}}", "{{index .nodes 1}}", "{{range .nodes}}{{.}}{{break}}{{end}}"])
def test_a_null_is_not_a_missing_field(source: str) -> None:
    render(source)


def test_the_sharp_flag_does_not_change_a_decimal_integer() -> None:
    assert render('{{printf "%#d %#x" .count .count}}') == "5 0x5"


def test_integers_beyond_int64_are_floats() -> None:
    text = render('{{.beyond}} {{printf "%T" .beyond}} {{.immense}} {{printf "%08.1f|% v" .immense .immense}}')

    assert text == "9.223372036854776e+18 float64 +Inf     +Inf| Inf"


def test_the_two_halves_of_a_split_character_are_joined() -> None:
    assert render('{{slice "é" 0 1}}{{slice "é" 1}}') == "é"
    assert render('{{slice "é" 0 1}}|{{slice "日" 1}}') == "\ufffd|\ufffd\ufffd"


def test_a_template_keeps_no_state_between_documents() -> None:
    template = Template("{{$x := .id}}{{range .nodes}}{{$x}}{{end}}")

    assert [template.render({"id": name, "nodes": [1, 2]}) for name in "ab"] == ["aa", "bb"]
