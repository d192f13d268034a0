"""The fields that a template reads: never too few, and rarely too many."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.core.gotemplate import Template, TemplateError
from sentinel.core.json import Json
from tests.golden.gotemplate.generator import TemplateGenerator
from tests.golden.gotemplate.oracle import ours
from tests.support.examples import examples


def read(source: str) -> list[str]:
    """Return the paths; `.` is the whole document."""
    return sorted(".".join(path) or "." for path in Template(source).fields_read())


def restricted(document: Json, paths: Iterable[tuple[str, ...]]) -> Json:
    """Return a document as a server returns it for these paths. A value that blocks a path is returned whole."""
    if not isinstance(document, dict) or () in paths:
        return document
    heads = {path[0] for path in paths}
    return {
        name: restricted(value, {path[1:] for path in paths if path[0] == name})
        for name, value in document.items()
        if name in heads
    }


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("text alone", ""),
        ("{{.id}}", "id"),
        ("{{.a.b}}{{.a.c}}{{.a.b}}", "a.b a.c"),
        ("{{.a.b}}{{.a}}", "a"),
        ("{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}",
         "metadata.displayName metadata.name"),
        ("{{if .a}}{{else if .b}}{{else}}{{.c}}{{end}}", "a b c"),
        ("{{.}}", "."),
        ("{{$}}", "."),
        ("{{$.a}}", "a"),
        ("{{print .}}", "."),
        ("{{range .}}{{end}}", "."),
        ("{{len .}}", "."),
        ("{{(.a).b}}", "a.b"),
        ("{{(print .a).b}}", "a"),
        ("{{with .a}}{{.b}}{{$.c}}{{end}}", "a c"),
        ("{{with .a}}{{else}}{{.b}}{{end}}", "a b"),
        ("{{range .a}}{{.b}}{{$.c}}{{else}}{{.d}}{{end}}", "a c d"),
        ("{{range $i, $e := .a}}{{$e.b}}{{end}}", "a"),
        ("{{$x := .a}}{{$x.b}}", "a.b"),
        ("{{$x := .a.b}}", "a.b"),
        ("{{$x := .a}}{{$x = .b}}{{$x.c}}", "a.c b"),
        ("{{$x := .a}}{{and false ($x := .b)}}{{$x.c}}", "a.c b"),
        ("{{if true}}{{$x := .a}}{{$x.b}}{{end}}", "a.b"),
        ("{{index .labels \"region\"}}", "labels.region"),
        ("{{index .labels \"app.kubernetes.io/name\"}}", "labels"),
        ("{{index . \"a\" \"b\"}}", "a.b"),
        ("{{index .a .b}}", "a b"),
        ("{{index .a 0 \"b\"}}", "a"),
        ("{{(index .a \"b\").c}}", "a.b.c"),
        ("{{\"b\" | index .a}}", "a"),
        ("{{index}}", ""),
        ("{{eq .a .b .c | print .d}}", "a b c d"),
        ("{{.a | .b}}", "a b"),
        ("{{.a .b}}", "a"),
        ("{{print nil true 1 \"a\" print}}", ""),
        ("{{template \"t\" .a}}{{define \"t\"}}{{.b}}{{$.c}}{{end}}", "a.b a.c"),
        ("{{template \"t\" .}}{{define \"t\"}}{{.b}}{{end}}", "b"),
        ("{{template \"t\"}}{{define \"t\"}}{{.b}}{{end}}", ""),
        ("{{template \"t\" .a}}{{define \"t\"}}text{{end}}", "a"),
        ("{{template \"nowhere\" .a}}", "a"),
        ("{{define \"never\"}}{{.a}}{{end}}{{.b}}", "b"),
        ("{{block \"t\" .a}}{{.b}}{{end}}", "a.b"),
        ("{{template \"t\" .a}}{{template \"t\" .b}}{{define \"t\"}}{{.c}}{{end}}", "a.c b.c"),
        ("{{template \"t\" .a}}{{define \"t\"}}{{.v}}{{template \"t\" .next}}{{end}}", "a.next a.v"),
    ],
)  # fmt: skip
def test_the_paths_are_exactly_those_needed(source: str, paths: str) -> None:
    assert read(source) == paths.split()


def test_the_analysis_of_exponentially_many_calls_ends() -> None:
    calls = "".join(
        f'{{{{define "{n}"}}}}{{{{template "{n + 1}" .a}}}}{{{{template "{n + 1}" .b}}}}{{{{end}}}}'
        for n in range(30)
    )

    paths = read('{{template "0" .}}{{define "30"}}{{.}}{{end}}' + calls)

    assert 0 < len(paths) < 1000


@settings(
    max_examples=examples(200),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.randoms(use_true_random=False))
def test_a_document_with_only_the_fields_that_are_read_renders_the_same(random: Random) -> None:
    generator = TemplateGenerator(random)
    source, document = generator.template(), generator.document()
    try:
        paths = Template(source).fields_read()
    except TemplateError:
        return

    assert ours(source, restricted(document, paths)) == ours(source, document)
