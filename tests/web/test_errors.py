"""Errors of use cases, and the problems that they become."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus

import msgspec
import pytest

from sentinel.ports.errors import Unavailable
from sentinel.web import errors, problem
from sentinel.web.body import Body
from sentinel.web.openapi import Info, document
from sentinel.web.problem import FieldError
from sentinel.web.routing import Method, Response
from tests.web.asgi_client import PERMISSIONS, call, make_app, raising, returning, route


class Finding(msgspec.Struct, frozen=True):
    """An error of a linter, with fields of its own."""

    level: int
    code: str
    line: int
    column: int
    message: str
    suggestion: str | None = None


FINDING = Finding(2, "dangling-reference", 7, 3, "expected an upstream that exists", "api-backend")


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"),
    [
        (errors.NotFound("no thing a"), 404, "HYPERFLEET-NTF-001", "no thing a"),
        (errors.Conflict("a is being deleted"), 409, "HYPERFLEET-CNF-001", "a is being deleted"),
        (errors.PreconditionFailed("a has changed"), 412, "HYPERFLEET-CNF-002", "a has changed"),
        (errors.Unprocessable("no target"), 422, "HYPERFLEET-VAL-002", "no target"),
        (Unavailable("connection refused"), 503, "HYPERFLEET-SVC-001", "the database does not answer"),
    ],
)
async def test_an_error_becomes_a_problem(
    error: Exception, status: int, code: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(route(raising(lambda: error)))

    with caplog.at_level(logging.WARNING):
        response = await call(app, "GET", "/things")

    assert (response.status, response.headers["content-type"]) == (status, "application/problem+json")
    assert (response.json["code"], response.json["detail"]) == (code, detail)
    assert "errors" not in response.json
    assert ("retry-after" in response.headers) == (status == 503)
    assert not caplog.records


async def test_invalid_fields_are_a_400_that_names_each() -> None:
    error = errors.Invalid((FieldError("name", "too long"), FieldError("spec.x", "too deep")))

    response = await call(make_app(route(raising(lambda: error))), "GET", "/things")

    assert (response.status, response.json["detail"]) == (400, "name: too long; spec.x: too deep")
    assert response.json["errors"] == [
        {"field": "name", "message": "too long"},
        {"field": "spec.x", "message": "too deep"},
    ]


async def test_a_422_has_errors_with_line_and_column() -> None:
    error = errors.Unprocessable("one error", errors=[FieldError("content", "unclosed brace", 3, 7)])

    response = await call(make_app(route(raising(lambda: error))), "GET", "/things")

    assert response.status == 422
    assert response.json["errors"] == [{"field": "content", "message": "unclosed brace", "line": 3, "column": 7}]


async def test_a_422_has_errors_of_the_components_type() -> None:
    error = errors.Unprocessable("one error of level 2", errors=[FINDING])

    response = await call(make_app(route(raising(lambda: error))), "GET", "/things")

    assert (response.status, response.json["detail"]) == (422, "one error of level 2")
    assert response.json["errors"] == [
        {
            "level": 2,
            "code": "dangling-reference",
            "line": 7,
            "column": 3,
            "message": "expected an upstream that exists",
            "suggestion": "api-backend",
        }
    ]


def test_only_the_422_is_documented_with_the_components_errors() -> None:
    own = route(
        returning(Response()), method=Method.POST, body=Body(type=dict), problems=(409, 422), error_type=Finding
    )
    other = route(returning(Response()), path="/others", problems=(422,))

    content = json.loads(document([own, other], Info(title="", version=""), permissions=PERMISSIONS))

    def schema(path: str, method: str, status: int) -> str:
        response = content["paths"][path][method]["responses"][str(status)]
        return str(response["content"]["application/problem+json"]["schema"]["$ref"]).rpartition("/")[2]

    schemas = content["components"]["schemas"]
    assert schema("/things", "post", 422) == "FindingProblem"
    assert schema("/things", "post", 409) == schema("/others", "get", 422) == "ProblemDocument"
    assert schemas["FindingProblem"]["properties"]["errors"]["items"] == {"$ref": "#/components/schemas/Finding"}
    assert set(schemas["FindingProblem"]["required"]) == set(schemas["ProblemDocument"]["required"])
    assert schemas["ProblemDocument"]["properties"]["errors"]["items"]["$ref"].endswith("/FieldError")


@pytest.mark.parametrize(
    ("status", "expected"), [(404, "Not Found"), (413, "Request Entity Too Large"), (422, "Unprocessable Entity")]
)
def test_a_title_is_the_same_on_every_python(status: int, expected: str) -> None:
    assert problem.title(HTTPStatus(status)) == expected
