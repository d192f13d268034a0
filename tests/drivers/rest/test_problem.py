"""Reading error bodies."""

from __future__ import annotations

import msgspec
import pytest

from sentinel.drivers.rest.problem import ReceivedFieldError, ReceivedProblem, read_problem


def read(**members: object) -> ReceivedProblem:
    found = read_problem(msgspec.json.encode(members))
    assert found is not None
    return found


def test_errors_keep_every_member() -> None:
    sent = {
        "level": 2,
        "code": "unknown-key",
        "line": 3,
        "column": 7,
        "message": "no such key",
        "suggestion": "port",
    }

    (error,) = read(code="HYPERFLEET-VAL-002", errors=[sent]).field_errors

    assert error == ReceivedFieldError("", "no such key", 3, 7, 2, "unknown-key", "port")
    assert str(error) == "no such key (line 3, column 7)"


def test_a_malformed_error_hides_neither_the_code_nor_other_errors() -> None:
    found = read(code="HYPERFLEET-NTF-000", errors=[{"field": ["a"]}, {"field": "b", "message": "bad"}, 7])

    assert found.code == "HYPERFLEET-NTF-000"
    assert found.field_errors == (ReceivedFieldError("b", "bad"),)


@pytest.mark.parametrize("errors", [{"a": 1}, {"a": [1]}, None, 7, "no", [{}], [{"field": ""}], [[]]])
def test_errors_of_an_unknown_shape_are_ignored(errors: object) -> None:
    assert read(detail="no", errors=errors).field_errors == ()


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"errors": [{"field": "size", "message": "must be at most 100"}]}, id="problem+json"),
        pytest.param({"details": [{"field": "size", "error": "must be at most 100"}]}, id="the older public API"),
        pytest.param({"errors": [{"pointer": "size", "detail": "must be at most 100"}]}, id="a pointer"),
        pytest.param({"errors": {"size": ["must be at most 100"]}}, id="texts by field"),
        pytest.param({"errors": {"size": "must be at most 100"}}, id="a text by field"),
        pytest.param({"errors": ["size: must be at most 100"]}, id="texts"),
    ],
)
def test_errors_of_every_known_shape_follow_the_text(members: dict[str, object]) -> None:
    assert read(title="Bad Request", **members).full_text == "Bad Request: size: must be at most 100"


def test_a_long_text_does_not_push_the_errors_out_of_sight() -> None:
    text = read(detail="x" * 1000, errors=["size must be at most 100"]).full_text

    assert text.startswith("xxx")
    assert text.endswith("…: size must be at most 100")
    assert len(text) < 200


def test_every_text_of_a_problem_is_redacted() -> None:
    error = ReceivedFieldError("secret", "secret", 1, 2, 3, "secret", "secret")
    found = ReceivedProblem("secret", "secret", "secret", "secret", "secret", (error,))

    redacted = found.redacted(lambda text: text.replace("secret", "***"))

    assert "secret" not in repr(redacted)
    assert redacted.field_errors == (ReceivedFieldError("***", "***", 1, 2, 3, "***", "***"),)


def test_a_body_that_is_not_a_problem_is_none() -> None:
    assert read_problem(b"<html>") is None
    assert read_problem(b'{"code": 7}') is None
