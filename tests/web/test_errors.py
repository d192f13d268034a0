"""Refusals of use cases, as the application answers them on any component's routes."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from sentinel.ports.errors import Unavailable
from sentinel.web import errors
from sentinel.web.body import Body
from sentinel.web.openapi import Info, document
from sentinel.web.problem import FieldError
from sentinel.web.routing import Method, Response
from tests.web.calling import PERMISSIONS, answering, app_of, call, raising, route


class Finding(msgspec.Struct, frozen=True):
    """What a checker of texts has to say, in its own shape."""

    level: int
    code: str
    line: int
    column: int
    message: str
    suggestion: str | None = None


FINDING = Finding(2, "dangling-reference", 7, 3, "expected an upstream that exists", "api-backend")


@pytest.mark.parametrize(
    ("refusal", "status", "code", "detail"),
    [
        (errors.NotFound("no thing a"), 404, "HYPERFLEET-NTF-001", "no thing a"),
        (errors.Conflict("a is being deleted"), 409, "HYPERFLEET-CNF-001", "a is being deleted"),
        (errors.PreconditionFailed("a has changed"), 412, "HYPERFLEET-CNF-002", "a has changed"),
        (errors.Unprocessable("no target"), 422, "HYPERFLEET-VAL-002", "no target"),
        (Unavailable("connection refused"), 503, "HYPERFLEET-SVC-001", "the database does not answer"),
    ],
)
async def test_a_refusal_becomes_a_problem_on_any_route(
    refusal: Exception, status: int, code: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(route(raising(lambda: refusal)))

    with caplog.at_level(logging.WARNING):
        answered = await call(app, "GET", "/things")

    assert (answered.status, answered.headers["content-type"]) == (status, "application/problem+json")
    assert (answered.json["code"], answered.json["detail"]) == (code, detail)
    assert "errors" not in answered.json
    assert ("retry-after" in answered.headers) == (status == 503)
    assert not caplog.records


async def test_invalid_fields_are_a_400_that_names_each() -> None:
    refusal = errors.Invalid((FieldError("name", "too long"), FieldError("spec.x", "too deep")))

    answered = await call(app_of(route(raising(lambda: refusal))), "GET", "/things")

    assert (answered.status, answered.json["detail"]) == (400, "name: too long; spec.x: too deep")
    assert answered.json["errors"] == [
        {"field": "name", "message": "too long"},
        {"field": "spec.x", "message": "too deep"},
    ]


async def test_a_422_carries_errors_with_line_and_column() -> None:
    refusal = errors.Unprocessable("one error", errors=[FieldError("content", "unclosed brace", 3, 7)])

    answered = await call(app_of(route(raising(lambda: refusal))), "GET", "/things")

    assert answered.status == 422
    assert answered.json["errors"] == [{"field": "content", "message": "unclosed brace", "line": 3, "column": 7}]


async def test_a_422_carries_errors_in_the_shape_of_the_component() -> None:
    refusal = errors.Unprocessable("one error of level 2", errors=[FINDING])

    answered = await call(app_of(route(raising(lambda: refusal))), "GET", "/things")

    assert (answered.status, answered.json["detail"]) == (422, "one error of level 2")
    assert answered.json["errors"] == [
        {
            "level": 2,
            "code": "dangling-reference",
            "line": 7,
            "column": 3,
            "message": "expected an upstream that exists",
            "suggestion": "api-backend",
        }
    ]


def test_the_document_has_the_errors_of_the_component_for_its_422_alone() -> None:
    own = route(
        answering(Response()), method=Method.POST, body=Body(type=dict), problems=(409, 422), error_type=Finding
    )
    other = route(answering(Response()), path="/others", problems=(422,))

    content = json.loads(document([own, other], Info(title="", version=""), permissions=PERMISSIONS))

    def schema(path: str, method: str, status: int) -> str:
        answer = content["paths"][path][method]["responses"][str(status)]
        return str(answer["content"]["application/problem+json"]["schema"]["$ref"]).rpartition("/")[2]

    schemas = content["components"]["schemas"]
    assert schema("/things", "post", 422) == "FindingProblem"
    assert schema("/things", "post", 409) == schema("/others", "get", 422) == "ProblemDocument"
    assert schemas["FindingProblem"]["properties"]["errors"]["items"] == {"$ref": "#/components/schemas/Finding"}
    assert set(schemas["FindingProblem"]["required"]) == set(schemas["ProblemDocument"]["required"])
    assert schemas["ProblemDocument"]["properties"]["errors"]["items"]["$ref"].endswith("/FieldError")
