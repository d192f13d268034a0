"""Limits: a template that runs too long, writes too much or nests too deep is stopped with an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.core.gotemplate import RenderError, Template, TemplateError
from sentinel.core.gotemplate.printer import MAX_TEXT_LENGTH
from sentinel.core.gotemplate.tokens import MAX_DEPTH
from sentinel.core.json import Json
from tests.golden.gotemplate.generator import TemplateGenerator
from tests.golden.gotemplate.oracle import ours

WIDE: Json = {"map": {f"key{n}": n for n in range(10_000)}, "list": list(range(10_000)), "text": "é" * 100_000}

PIECES = (
    "{{", "}}", "{{- ", " -}}", "/*", "*/", "(", ")", "|", ":=", "=", ",", "$x", "$", ".a", ".", '"s"', "`r`",
    "'c'", "1", "if ", "else ", "end", "range ", "with ", "define ", "template ", "block ", "break", "continue",
    "nil", " ", "\n", "len ", "true", "x", "é", "#", "{{if .a}}", "{{range .a}}", "{{else}}", "{{end}}",
    '{{define "s"}}',
    '{{template "s" .}}', "{{.a}}", "\0",
)  # fmt: skip


def failure(source: str, document: Json = None) -> str:
    with pytest.raises(RenderError) as caught:
        Template(source).render(document)
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{range 9223372036854775807}}{{end}}",
        "{{range 1000000}}{{range 1000000}}{{end}}{{end}}",
        "{{range 1000}}{{range 1000}}{{continue}}{{end}}{{end}}",
        "{{range 99999}}{{$x := print .}}{{end}}",
        "{{range 100000}}{{range $.map}}{{break}}{{end}}{{end}}",
        "{{range 100000}}{{$x := slice $.list 1}}{{end}}",
        "{{range 100000}}{{$x := len $.text}}{{end}}",
        "{{range 100000}}{{$x := print $.map}}{{end}}",
        '{{define "a"}}{{template "b"}}{{template "b"}}{{end}}{{define "b"}}{{range 300}}{{end}}{{end}}'
        '{{range 300}}{{template "a"}}{{end}}',
    ],
)
def test_a_template_that_does_too_much_is_stopped(source: str) -> None:
    assert failure(source, WIDE).startswith(
        "stopped after 100000 steps: a loop or a recursion without end? (line 1"
    )


@pytest.mark.parametrize(
    "source",
    [
        '{{define "t"}}{{template "t"}}{{end}}{{template "t"}}',
        '{{define "a"}}{{template "b"}}{{end}}{{define "b"}}{{template "a"}}{{end}}{{template "a"}}',
        '{{template "message_data"}}',
    ],
)
def test_a_template_that_calls_itself_without_end_is_stopped(source: str) -> None:
    assert "exceeded maximum template depth (1000) (line 1, column" in failure(source)


@pytest.mark.parametrize(
    "source",
    [
        '{{range 99}}{{printf "%99999d" 1}}{{end}}',
        '{{$x := "0123456789"}}{{range 99}}{{$x = print $x $x}}{{end}}',
        '{{$x := "0123456789"}}{{range 99}}{{$x = printf "%s%s" $x $x}}{{end}}',
        '{{printf "%999999d%999999d" 1 2}}',
        '{{printf "%9999999d" 1}}',
        '{{printf "%1000000d" .list}}',
        '{{printf "%.1000000f" .list}}',
        "{{println .text .text .text .text .text .text .text .text .text .text .text .text}}",
    ],
)
def test_output_that_grows_without_end_is_stopped(source: str) -> None:
    assert f"stopped: the text grew beyond {MAX_TEXT_LENGTH} characters (line 1, column" in failure(source, WIDE)


def test_large_output_within_the_limits_is_rendered() -> None:
    assert len(Template("{{range .list}}{{.}},{{end}}").render(WIDE)) == 48_890
    assert len(Template('{{printf "%1000000d" 1}}').render(None)) == 1_000_000


def nested_blocks(opening: str, depth: int) -> str:
    return opening * depth + "x" + "{{end}}" * depth


def nested_parentheses(opening: str, depth: int) -> str:
    return "{{" + opening * depth + "1" + ")" * depth + "}}"


NESTINGS = [
    *(
        partial(nested_blocks, block)
        for block in ("{{if true}}", "{{with 1}}", "{{range 1}}", '{{block "t" .x.y}}')
    ),
    *(partial(nested_parentheses, call) for call in ("(", "(print ", "(print 1 | print ")),
]


@pytest.mark.parametrize("nested", NESTINGS)
def test_nesting_up_to_the_limit_is_rendered(nested: Callable[[int], str]) -> None:
    ours(nested(MAX_DEPTH), None)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 10_000])
@pytest.mark.parametrize("nested", NESTINGS)
def test_nesting_that_is_too_deep_is_rejected(nested: Callable[[int], str], depth: int) -> None:
    with pytest.raises(TemplateError, match=f"nested too deeply: more than {MAX_DEPTH} blocks and parentheses"):
        Template(nested(depth))


def test_a_chain_of_many_else_ifs_is_not_deep() -> None:
    source = "{{if false}}" + "{{else if false}}" * 5000 + "{{else}}x{{end}}"

    assert Template(source).render(None) == "x"


def test_a_long_sequence_of_calls_is_not_deep() -> None:
    row = "".join(f'{{{{define "{n}"}}}}{{{{template "{n + 1}"}}}}{{{{end}}}}' for n in range(900))

    assert Template('{{template "0"}}{{define "900"}}x{{end}}' + row).render(None) == "x"


@pytest.mark.parametrize("source", ["{{.}}", '{{printf "%3v" .}}', "{{html .}}", '{{printf "%#v" .}}'])
def test_a_document_nested_deeper_than_pythons_stack_is_printed(source: str) -> None:
    document: Json = 1
    for _ in range(20_000):
        document = [document]

    text = Template(source).render(document)

    assert text.count("[") == text.count("]") == 20_000


@pytest.mark.parametrize("digits", [100, 10_000, 300_000])
@pytest.mark.parametrize("prefix", ["1", "0x1", "0b1", "01", "1.", "1e1", "0x1p1", "'1", "1+1", "1_"])
def test_a_number_of_any_length_is_parsed_or_rejected(prefix: str, digits: int) -> None:
    answer = ours("{{" + prefix + "0" * digits + "}}", None)

    assert answer.output or answer.fails == "parse"


bounded = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@bounded
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text().map("{{{}}}".format) | st.text())
def test_every_string_compiles_or_reports_a_position(source: str) -> None:
    try:
        Template(source)
    except TemplateError as error:
        assert 1 <= error.line <= source.count("\n") + 1
        assert 1 <= error.column <= len(source) + 1
        assert error.problem


@bounded
@given(st.randoms(use_true_random=False))
def test_every_template_renders_or_reports_a_problem(random: Random) -> None:
    generator = TemplateGenerator(random)
    source, document = generator.template(), generator.document()

    answer = ours(source, document)

    assert answer.problem or (answer.output or "").encode() is not None
