"""Any document that follows the table has no errors, and no document makes the check fail."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from sentinel.core import kdl
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema import CURRENT
from sentinel.core.proxy.validation import check_schema
from tests.core.proxy.configurations import WORDS, configurations
from tests.support.examples import examples


@settings(max_examples=examples(150))
@given(configurations())
def test_a_document_that_follows_the_table_has_no_errors(document: kdl.Document) -> None:
    parsed = kdl.parse(kdl.print_document(document))

    found = [problem for problem in check_schema(parsed.document) if problem.severity is Severity.ERROR]

    assert parsed.is_valid
    assert found == []


NAMES = st.sampled_from(sorted({row.name for _, row in CURRENT.walk()})) | WORDS
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS
NODES = st.recursive(
    st.builds(
        kdl.Node,
        NAMES,
        st.lists(st.builds(kdl.Value, SCALARS), max_size=2).map(tuple),
        st.lists(st.builds(kdl.Property, NAMES, st.builds(kdl.Value, SCALARS)), max_size=2).map(tuple),
    ),
    lambda inner: st.builds(
        kdl.Node,
        NAMES,
        st.lists(st.builds(kdl.Value, SCALARS), max_size=2).map(tuple),
        children=st.lists(inner, max_size=4).map(tuple),
    ),
    max_leaves=20,
)


@settings(max_examples=examples(150))
@given(st.lists(NODES, max_size=6), st.booleans())
def test_no_document_makes_the_check_fail(nodes: list[kdl.Node], is_damaged: bool) -> None:
    text = kdl.print_document(kdl.Document(tuple(nodes))) + ("}" if is_damaged else "")
    lines = text.count("\n") + 1

    problems = check_schema(kdl.parse(text).document)

    assert all(problem.line is not None and 1 <= problem.line <= lines for problem in problems)
    assert all(problem.message for problem in problems)
