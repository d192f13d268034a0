"""Searches: parsed, with errors that say where, and evaluated."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core import labels, search
from sentinel.core.fleet.documents import (
    Condition,
    ConditionStatus,
    Metadata,
    Phase,
    ResourceDocument,
    ResourceStatus,
)
from sentinel.core.search import AllOf, AnyOf, Comparison, Field, FieldKind, SearchError, conjuncts, matches, parse
from tests.support.fleet.searches import Subject, Tree, holds, trees

NOW = datetime(2026, 3, 1, tzinfo=UTC)
READY = "status.conditions.Ready"
TEXTS = ("", "a", "b", "it's", "x and y='z'", "ä")
FIELDS = {
    "labels.tier": TEXTS,
    "labels.example.com/tier": TEXTS,
    "labels.in": TEXTS,
    "name": TEXTS,
    "id": TEXTS,
    "generation": ("1", "2", "10"),
    READY: ("True", "False", "Unknown"),
}
subjects = st.builds(
    Subject,
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS),
    st.dictionaries(st.sampled_from(("tier", "example.com/tier", "in")), st.sampled_from(TEXTS)),
    st.fixed_dictionaries(
        {"generation": st.sampled_from(("1", "2", "10"))},
        optional={READY: st.sampled_from(("True", "False", "Unknown"))},
    ),
)
EAST = Subject(
    id="cls-1", name="first", labels={"region": "us-east"}, attributes={"generation": "2", READY: "True"}
)


def label(key: str, *values: str, is_negated: bool = False) -> Comparison:
    return Comparison(Field(FieldKind.LABEL, key), values, is_negated)


@given(trees(FIELDS), subjects)
def test_a_search_selects_what_a_plain_evaluator_selects(tree: Tree, subject: Subject) -> None:
    expression = parse(str(tree))

    assert expression is not None
    assert matches(expression, subject) == holds(tree, subject)


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("labels.region='us-east'", True),
        ("labels.region = 'us-west'", False),
        ("labels.region!='us-west'", True),
        ("labels.region in ('us-west','us-east')", True),
        ("labels.region not in ('us-west','us-east')", False),
        ("labels.absent='x'", False),
        ("labels.absent in ('x','')", False),
        ("labels.absent!='x'", True),
        ("labels.absent not in ('x')", True),
        ("not labels.absent='x'", True),
        ("name='first' AND id='cls-1'", True),
        ("name='x' oR id='cls-1'", True),
        ("NOT name='first'", False),
        ("not not name='first'", True),
        ("generation=2", True),
        ("generation='2'", True),
        ("generation = 002", True),
        ("generation in (1, 3)", False),
        ("generation=-1", False),
        (f"{READY}='True'", True),
        (f"{READY}!='True'", False),
        ("status.conditions.Absent='True'", False),
        ("status.conditions.Absent!='True'", True),
        # "not" binds strongest, then "and", then "or".
        ("name='first' or name='x' and name='y'", True),
        ("(name='first' or name='x') and name='y'", False),
        ("not name='x' and name='y'", False),
        ("not (name='x' and name='y')", True),
        ("name='y' and name='x' or name='first'", True),
    ],
)
def test_a_search_is_evaluated(text: str, is_selected: bool) -> None:
    expression = parse(text)

    assert expression is not None
    assert matches(expression, EAST) is is_selected


@pytest.mark.parametrize("text", ["", " ", "\t\r\n "])
def test_empty_text_selects_everything(text: str) -> None:
    assert parse(text) is None
    assert conjuncts(parse(text)) == ()


def test_a_doubled_quote_stands_for_a_quote() -> None:
    assert parse("labels.a='it''s'''") == label("a", "it's'")
    assert parse("labels.a=''") == label("a", "")


def test_conjunctions_become_one_and_negations_move_inwards() -> None:
    a, b, c = (label(key, "1") for key in "abc")
    not_a, not_b, not_c = (label(key, "1", is_negated=True) for key in "abc")

    nested = parse("labels.a='1' and (labels.b='1' and not labels.c!='1')")
    negated = parse("not (labels.a='1' or (labels.b='1' or labels.c='1'))")

    assert conjuncts(nested) == (a, b, c)
    assert conjuncts(negated) == (not_a, not_b, not_c)
    assert parse("not (labels.a='1' and labels.b='1')") == AnyOf((not_a, not_b))
    assert parse("labels.a='1' or (labels.b='1' or labels.c='1')") == AnyOf((a, b, c))
    assert conjuncts(parse("((labels.a='1'))")) == (a,)
    assert parse("labels.a='1' and (labels.b='1' or labels.c='1')") == AllOf((a, AnyOf((b, c))))


def test_the_values_of_a_list_are_sorted_and_unique() -> None:
    assert parse("labels.a in ('b', 'a', 'b')") == label("a", "a", "b")


def test_a_selector_as_search_is_parsed_to_the_same_requirements() -> None:
    selector = labels.parse("region=us-east,tier in (gold,silver),env!=dev,zone notin (a,b)")

    assert conjuncts(parse(selector.as_search_parameter())) == (
        label("region", "us-east"),
        label("tier", "gold", "silver"),
        label("env", "dev", is_negated=True),
        label("zone", "a", "b", is_negated=True),
    )


UNKNOWN = "expected labels.<key>, name, id, generation or status.conditions.<Type>"


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("spec.region='x'", f'unknown field "spec.region"; {UNKNOWN}', 1),
        ("name='x' and kind='y'", f'unknown field "kind"; {UNKNOWN}', 14),
        ("Name='x'", f'unknown field "Name"; {UNKNOWN}', 1),
        ("labels='x'", f'unknown field "labels"; {UNKNOWN}', 1),
        ("status.conditions.='True'", f'unknown field "status.conditions."; {UNKNOWN}', 1),
        (
            "status.conditions.Ready.last_updated_time='x'",
            f'unknown field "status.conditions.Ready.last_updated_time"; {UNKNOWN}',
            1,
        ),
        ("labels.-a='x'", "expected a key of at most 63 letters", 1),
        ("labels.A/b='x'", "expected a key whose prefix is a DNS name", 1),
        ("name", "expected one of =, !=, in, not in, got the end", 5),
        ("name like 'x'", 'expected one of =, !=, in, not in, got "like"', 6),
        ("name<'x'", 'expected one of =, !=, in, not in, got "<"', 5),
        ("name==='x'", 'expected a string in single quotes, got "="', 6),
        ("name not 'x'", "expected in, got 'x'", 10),
        ("name=x", 'expected a string in single quotes, got "x"', 6),
        ("name=1", 'expected a string in single quotes, got "1"', 6),
        ("name=", "expected a string in single quotes, got the end", 6),
        ("name='x", "expected a closing quote for this string", 6),
        ("name='x' 'y'", "expected and, or, or the end, got 'y'", 10),
        ("name='x')", 'expected and, or, or the end, got ")"', 9),
        ("(name='x'", 'expected and, or, or ")", got the end', 10),
        ("()", 'expected a field, not or "(", got ")"', 2),
        ("name='x' and", 'expected a field, not or "(", got the end', 13),
        ("'x'='x'", "expected a field, not or \"(\", got 'x'", 1),
        ("name in 'x'", "expected \"(\", got 'x'", 9),
        ("name in ()", 'expected a string in single quotes, got ")"', 10),
        ("name in ('x' 'y')", "expected a comma or \")\", got 'y'", 14),
        ("generation='x'", "expected an integer of at most 64 bits, got 'x'", 12),
        ("generation=1.5", 'expected an integer of at most 64 bits, got "1.5"', 12),
        ("generation=9223372036854775808", "expected an integer of at most 64 bits", 12),
        ("generation=-9223372036854775809", "expected an integer of at most 64 bits", 12),
        ("name='\0'", "expected no NUL character", 7),
        ("x" * 5000, "expected at most 4096 characters, got 5000", 4097),
    ],
)
def test_an_error_says_what_was_expected_and_where(text: str, message: str, column: int) -> None:
    with pytest.raises(SearchError) as caught:
        parse(text)

    assert caught.value.message.startswith(message)
    assert caught.value.column == column
    assert str(caught.value).endswith(f"(column {column})")


def test_a_search_is_bounded_in_depth_comparisons_and_values() -> None:
    def nested(depth: int) -> str:
        return "(" * depth + "name='x'" + ")" * depth

    def joined(comparisons: int) -> str:
        return " or ".join(["name='x'"] * comparisons)

    def listed(values: int) -> str:
        return "name in (" + ",".join(["'x'"] * values) + ")"

    for write, limit in (
        (nested, search.MAX_DEPTH),
        (joined, search.MAX_COMPARISONS),
        (listed, search.MAX_VALUES),
    ):
        assert parse(write(limit)) is not None
        with pytest.raises(SearchError, match=f"expected at most {limit} "):
            parse(write(limit + 1))
    assert parse("not " * 1000 + "name='x'") == Comparison(Field(FieldKind.NAME), ("x",))
    assert parse("(name='x') and " * 20 + nested(search.MAX_DEPTH)) is not None


@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            (
                "name",
                "labels.a",
                "generation",
                "=",
                "!=",
                "in",
                "not",
                "and",
                "or",
                "(",
                ")",
                ",",
                "'a'",
                "1",
                "'",
                " ",
            )
        ),
        max_size=20,
    ).map(" ".join)
)
def test_any_text_is_parsed_or_refused_with_a_column(text: str) -> None:
    with suppress(SearchError):
        try:
            parse(text)
        except SearchError as error:
            assert 1 <= error.column <= len(text) + 1
            raise


def test_the_attributes_of_a_resource_are_generation_and_conditions() -> None:
    condition = Condition("Ready", ConditionStatus.FALSE, 3, NOW, NOW, NOW)
    other = Condition("Other", ConditionStatus.UNKNOWN, 3, NOW, NOW, NOW)
    document = ResourceDocument(
        id="cls-1",
        kind="Cluster",
        href="/clusters/cls-1",
        name="first",
        labels={},
        spec=msgspec.Raw(b"{}"),
        generation=3,
        created_time=NOW,
        updated_time=NOW,
        created_by="ops",
        updated_by="ops",
        metadata=Metadata("first", {}),
        status=ResourceStatus(Phase.NOT_READY, 3, NOW, NOW, (condition, other)),
    )

    assert search.attributes(document) == {
        "generation": "3",
        "status.conditions.Ready": "False",
        "status.conditions.Other": "Unknown",
    }
