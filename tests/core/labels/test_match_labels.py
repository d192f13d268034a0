"""`matchLabels` and `matchExpressions` are read as in Kubernetes, or rejected with every path."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.core.labels import (
    InvalidMatch,
    MatchExpression,
    Operator,
    Requirement,
    Selector,
    from_match_labels,
    parse,
)


def problems(*expressions: MatchExpression, **match_labels: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidMatch) as caught:
        from_match_labels(match_labels, expressions)
    return list(caught.value.problems)


def test_an_empty_object_selects_everything() -> None:
    assert from_match_labels({}) == Selector()


def test_labels_and_expressions_must_all_hold_in_their_order() -> None:
    expressions = [
        MatchExpression("env", "NotIn", ("test", "dev", "test")),
        MatchExpression("zone", "In", ("b", "a")),
        MatchExpression("example.com/tier", "Exists"),
        MatchExpression("paused", "DoesNotExist"),
    ]

    selector = from_match_labels({"region": "us-east", "note": ""}, expressions)

    assert selector == parse("region=us-east,note=,env notin (dev,test),zone in (a,b),example.com/tier,!paused")


def test_an_expression_is_decoded_as_kubernetes_writes_it() -> None:
    written = b'[{"key": "zone", "operator": "In", "values": ["a"]}, {"key": "x", "operator": "Exists"}]'

    expressions = msgspec.json.decode(written, type=list[MatchExpression])

    assert from_match_labels({}, expressions).requirements == (
        Requirement("zone", Operator.IN, ("a",), is_set=True),
        Requirement("x", Operator.EXISTS),
    )


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_a_comparison_needs_values(operator: str) -> None:
    assert problems(MatchExpression("a", operator)) == [
        ("matchExpressions[0].values", f"expected at least one for {operator}, got none")
    ]


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist"])
def test_existence_takes_no_values(operator: str) -> None:
    assert problems(MatchExpression("a", operator, ("x", "y"))) == [
        ("matchExpressions[0].values", f"expected none for {operator}, got 2")
    ]


@pytest.mark.parametrize("operator", ["", "in", "Gt", "Lt", "=", "exists"])
def test_an_unknown_operator_is_named(operator: str) -> None:
    assert problems(MatchExpression("a", operator, ("1",))) == [
        (
            "matchExpressions[0].operator",
            f'expected one of In, NotIn, Exists, DoesNotExist, got "{operator}"',
        )
    ]


def test_every_problem_is_named_with_its_path() -> None:
    found = problems(
        MatchExpression("fine", "Exists"),
        MatchExpression("-a", "In", ("good", "not this", "b/c")),
        MatchExpression("b", "Near"),
        region="us east",
        fine="yes",
    )

    assert [path for path, _ in found] == [
        "matchLabels.region",
        "matchExpressions[1].key",
        "matchExpressions[1].values[1]",
        "matchExpressions[1].values[2]",
        "matchExpressions[2].operator",
    ]
    assert 'got "not this"' in found[2][1]


def test_the_message_has_all_problems_in_one_line() -> None:
    with pytest.raises(InvalidMatch, match=r"^matchLabels\.-a: .*; matchExpressions\[0\]\.values: .*"):
        from_match_labels({"-a": "x"}, [MatchExpression("a", "In")])


def test_a_huge_key_is_not_repeated_whole() -> None:
    ((path, message),) = problems(**{"k" * 100_000: "x"})

    assert len(path) < 400
    assert len(message) < 600
