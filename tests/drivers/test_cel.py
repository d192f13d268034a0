"""Expressions in CEL: what is found when they are compiled, and what they evaluate to."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import example, given

from sentinel.core.fleet import reports
from sentinel.core.fleet.documents import AdapterStatus
from sentinel.core.fleet.expressions import (
    ConditionExpressions,
    ConditionRule,
    EvaluationFailure,
    Expression,
    ExpressionError,
    ExpressionInput,
)
from sentinel.drivers.cel import compile_expression
from tests.support.fleet.histories import ADAPTERS, Patched, Reported, Step, any_steps
from tests.support.fleet.one_resource import FALSE, TRUE, OneResource, report_of, unworded

AVAILABLE, READY = ConditionRule.AVAILABLE, ConditionRule.READY

SEED_AVAILABLE = """self.items.all(i, 
  i.observed_generation == self.items[0].observed_generation && 
  i.conditions.exists(c, c.type == 'Available' && c.status == 'True')
)"""  # noqa: W291  # word for word
SEED_READY = "available && self.items.all(i, i.observed_generation == generationN)"


def compiled(text: str, rule: ConditionRule = AVAILABLE) -> Expression:
    expression = compile_expression(rule, text)
    assert callable(expression), expression
    return expression


def errors(text: str, rule: ConditionRule = AVAILABLE) -> Sequence[ExpressionError]:
    found = compile_expression(rule, text)
    assert not callable(found)
    return found


def statuses(data: bytes = b'{"replicas":3,"password":"hunter2"}') -> list[AdapterStatus]:
    """Reports of dns at generation 1, quota at 2 and validation at 3. Only dns has data."""
    found = [
        reports.apply(report_of(adapter, FALSE if adapter == "quota" else TRUE, generation=generation), None)
        for generation, adapter in enumerate(ADAPTERS, start=1)
    ]
    return [msgspec.structs.replace(found[0], data=msgspec.Raw(data)), *found[1:]]


def evaluated(text: str, rule: ConditionRule = AVAILABLE, *, available: bool = False) -> bool | EvaluationFailure:
    return compiled(text, rule)(ExpressionInput(items=statuses(), generation=3, is_available=available))


# What is found when an expression is compiled


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("self.items.all(i, i.x ==", "1:25", "Syntax error: mismatched input '<EOF>'"),
        ("", "1:1", "Syntax error"),
        ("self.itmes.size() > 0", "1:5", "undefined field 'itmes' not found in struct 'Self'"),
        (
            "self.items.all(i, i.generation == 1)",
            "1:20",
            "undefined field 'generation' not found in struct 'Report'",
        ),
        ("true &&\n  self.items.all(i, i.adapter == 1)", "2:31", "'_==_' applied to '(string, int)'"),
        ("self.items.exists(i, i.conditions.exists(c, c.state == 'x'))", "1:46", "in struct 'Condition'"),
        ("generationN == '1'", "1:13", "'_==_' applied to '(int, string)'"),
        ("now > 1", "1:1", "undeclared reference to 'now'"),
        ("self.items.size()", "1:1", "expected true or false, got a value of type int"),
        ("'True'", "1:1", "expected true or false, got a value of type string"),
        ("(" * 50 + "true" + ")" * 50, "1:1", "recursion limit exceeded"),
        ("[" * 31 + "1" + "]" * 31 + " == []", "1:1", "Exceeded max recursion depth"),
        ("true" + " && true" * 20_000, "1:1", "expression size exceeds"),
    ],
)
def test_an_error_has_its_position_and_its_cause(text: str, position: str, words: str) -> None:
    [error] = errors(text)

    assert f"{error.line}:{error.column}" == position
    assert words in error.message
    assert "INVALID_ARGUMENT" not in error.message
    assert "\n" not in error.message


def test_all_errors_of_an_expression_are_found() -> None:
    assert [error.column for error in errors("foo && bar || generationN == 'x'")] == [1, 8, 27]


def test_available_is_defined_for_ready_alone() -> None:
    assert callable(compile_expression(READY, "available"))
    [error] = errors("available")
    assert error.message == "undeclared reference to 'available'"


def test_an_expression_is_compiled_once() -> None:
    assert compiled("generationN > 1") is compiled("generationN > 1")


# What an expression evaluates to


@pytest.mark.parametrize(
    "text",
    [
        "self.items.map(i, i.adapter) == ['dns', 'quota', 'validation']",
        "self.items.map(i, i.observed_generation) == [1, 2, 3]",
        "generationN == 3",
        "self.items.filter(i, i.conditions.exists(c, c.type == 'Available' && c.status == 'True')).size() == 2",
        "self.items[0].conditions.all(c, c.reason == '' && c.message == '')",
        "self.items.all(i, i.last_report_time == timestamp('2025-10-17T10:01:00Z'))",
        "self.items.all(i, i.created_time <= timestamp(i.last_report_time))",
        "self.items[0].conditions.all(c, c.last_transition_time - c.created_time == duration('0s'))",
        "self.items[0].data.replicas == 3",
        "self.items.exists_one(i, has(i.data) && has(i.data.replicas))",
        "!has(self.items[0].metadata)",
    ],
)
def test_an_expression_reads_every_field_of_a_report(text: str) -> None:
    assert evaluated(text) is True


@pytest.mark.parametrize("value", [True, False])
def test_ready_reads_available(value: bool) -> None:
    assert evaluated("available", READY, available=value) is value


def test_metadata_are_readable() -> None:
    [status, *_] = statuses()
    items = [msgspec.structs.replace(status, metadata=msgspec.Raw(b'{"job":"x"}'))]

    assert compiled("self.items[0].metadata.job == 'x'")(ExpressionInput(items=items, generation=1)) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0 == 1", "divide by zero"),
        ("self.items[7].adapter == 'dns'", "an index is out of range"),
        ("self.items.all(i, i.data.replicas > 0)", 'no such key: "data"'),
        ("self.items[0].data.size > 0", 'no such key: "size"'),
        ("self.items[0].data.password + 1 == 2", "no such operation: _+_(string, int64)"),
        ("self.items[0].data.password", "expected true or false, got a value of type string"),
        ("self.items[0].data[self.items[0].data.password] == 1", "no such key"),
        ("'x'.matches(self.items[0].data.password + '(')", "invalid regular expression"),
        ("int(self.items[0].data.password) == 1", "cannot convert string to int"),
        ("bool(self.items[0].data.password)", "type conversion error from"),
        ("self.items.all(a, " * 12 + "true" + ")" * 12, "iteration budget exceeded"),
    ],
)
def test_a_failure_names_the_cause_and_no_value(text: str, message: str) -> None:
    assert evaluated(text) == EvaluationFailure(message)


def test_a_number_beyond_64_bits_is_a_failure_without_the_number() -> None:
    items = statuses(b'{"n":18446744073709551617}')

    failure = compiled("self.items[0].data.n == 1")(ExpressionInput(items=items, generation=1))

    assert isinstance(failure, EvaluationFailure)
    assert "1844" not in failure.message


def test_threads_can_share_an_expression() -> None:
    expression = compiled(SEED_AVAILABLE)
    agreed = [reports.apply(report_of(adapter), None) for adapter in ADAPTERS]
    inputs = [ExpressionInput(items=items, generation=1) for items in (agreed, statuses())] * 200

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(expression, inputs))

    assert results == [True, False] * 200


# The built-in rules as expressions

ROLLED_OUT: list[Step] = [
    *(Reported(adapter, TRUE, 1, 0, False) for adapter in ADAPTERS),
    Patched(2),
    *(Reported(adapter, TRUE, 3, 0, False) for adapter in ADAPTERS),
]
FALLEN: list[Step] = [*ROLLED_OUT, Reported("quota", FALSE, 4, 0, False), Reported("quota", TRUE, 5, 0, False)]
STUCK: list[Step] = [*ROLLED_OUT, Patched(4), *(Reported(adapter, FALSE, 5, 0, False) for adapter in ADAPTERS)]


@given(any_steps)
@example(ROLLED_OUT)
@example(FALLEN)
@example(STUCK)
def test_the_seeds_expressions_give_the_built_in_conditions(steps: list[Step]) -> None:
    expressions = ConditionExpressions(compiled(SEED_AVAILABLE), compiled(SEED_READY, READY))
    by_expression, built_in = OneResource(*ADAPTERS, expressions=expressions), OneResource(*ADAPTERS)

    for step in steps:
        step(by_expression)
        step(built_in)

        assert unworded(by_expression.status) == unworded(built_in.status)
        assert by_expression.waiting == built_in.waiting


@pytest.mark.parametrize(
    ("steps", "available", "generation", "ready"),
    [
        (ROLLED_OUT, TRUE, 2, TRUE),
        (FALLEN[:-1], FALSE, 2, FALSE),
        (FALLEN, TRUE, 2, TRUE),
        (STUCK, TRUE, 2, FALSE),
    ],
)
def test_the_example_histories_reach_every_state(
    steps: list[Step], available: object, generation: int, ready: object
) -> None:
    expressions = ConditionExpressions(compiled(SEED_AVAILABLE), compiled(SEED_READY, READY))
    resource = OneResource(*ADAPTERS, expressions=expressions)

    for step in steps:
        step(resource)

    assert (resource.available.status, resource.available.observed_generation) == (available, generation)
    assert resource.ready.status is ready
