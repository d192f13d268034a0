"""The OpenAPI document, and its HTML page."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from html.parser import HTMLParser
from typing import Annotated, Any

import msgspec
import pytest

from sentinel.web.body import Body
from sentinel.web.openapi import Info, document, openapi_routes
from sentinel.web.routing import OPEN, Method, Parameter, ResponseSpec
from tests.web.asgi_client import FORCE_DELETE, OK, PERMISSIONS, WRITE, call, make_app, route


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something <b>bold</b>."""

    name: Annotated[str, msgspec.Meta(max_length=63, description="What it is called.")]
    colour: Colour | msgspec.UnsetType = msgspec.UNSET


class Outer(msgspec.Struct, frozen=True):
    inner: Thing
    more: list[Outer]


class Query(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=10, description="How many.")] = 5
    colour: Colour | None = None
    after: str = ""


ROUTES = (
    route(OK, query=Query, responses=(ResponseSpec(status=200, description="Things.", type=list[Thing]),)),
    route(
        OK,
        method=Method.POST,
        action=WRITE,
        body=Body(type=Thing, example=msgspec.Raw(b'{"name": "<a>"}')),
        responses=(ResponseSpec(status=201, description="Made.", type=Thing, headers={"ETag": "Its version."}),),
        headers=(Parameter(name="Idempotency-Key", description="Makes it safe to repeat."),),
        problems=(409,),
    ),
    route(OK, path="/things/{id}", problems=(404,)),
    route(
        OK,
        method=Method.DELETE,
        path="/things/{id}",
        action=FORCE_DELETE,
        responses=(ResponseSpec(status=204, description="Gone."),),
    ),
    route(OK, path="/status", action=OPEN, tag="status"),
    route(OK, path="/hidden", is_documented=False),
)


def described(*, is_insecure: bool = False) -> Any:
    info = Info(title="Things & more", version="1.2", description="All of them.", is_insecure=is_insecure)
    return json.loads(document(ROUTES, info, permissions=PERMISSIONS))


def test_exactly_the_documented_routes_are_in_the_document() -> None:
    operations = {(path, method) for path, methods in described()["paths"].items() for method in methods}

    assert operations == {(route.path, route.method.lower()) for route in ROUTES if route.is_documented}


def test_operation_ids_are_unique() -> None:
    ids = [each["operationId"] for methods in described()["paths"].values() for each in methods.values()]

    assert len(ids) == len(set(ids))
    assert "get_things_by_id" in ids


def test_a_query_becomes_parameters_with_limits_and_defaults() -> None:
    parameters = described()["paths"]["/things"]["get"]["parameters"]

    assert parameters == [
        {
            "name": "size",
            "in": "query",
            "description": "How many.",
            "required": False,
            "schema": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
        },
        {
            "name": "colour",
            "in": "query",
            "description": "",
            "required": False,
            "schema": {"$ref": "#/components/schemas/Colour"},
        },
        {"name": "after", "in": "query", "description": "", "required": False, "schema": {"type": "string"}},
    ]


def test_path_parameters_are_required_and_headers_are_optional() -> None:
    paths = described()["paths"]

    assert [(p["name"], p["in"], p["required"]) for p in paths["/things/{id}"]["get"]["parameters"]] == [
        ("id", "path", True)
    ]
    assert [(p["name"], p["in"], p["required"]) for p in paths["/things"]["post"]["parameters"]] == [
        ("Idempotency-Key", "header", False)
    ]


def test_bodies_and_responses_refer_to_schemas_of_the_structs() -> None:
    operation, schemas = described()["paths"]["/things"]["post"], described()["components"]["schemas"]

    content = operation["requestBody"]["content"]["application/json"]
    assert content == {"schema": {"$ref": "#/components/schemas/Thing"}, "example": {"name": "<a>"}}
    assert operation["responses"]["201"]["content"]["application/json"]["schema"] == content["schema"]
    assert schemas["Thing"]["additionalProperties"] is False
    assert schemas["Thing"]["required"] == ["name"]
    assert "Query" not in schemas


@pytest.mark.parametrize(
    ("path", "method", "statuses"),
    [
        ("/things", "get", [200, 400, 401, 403, 500, 503]),
        ("/things", "post", [201, 400, 401, 403, 408, 409, 413, 415, 500, 503]),
        ("/things/{id}", "get", [200, 400, 401, 403, 404, 500, 503]),
        ("/status", "get", [200, 400, 500, 503]),
    ],
)
def test_every_status_that_follows_from_a_declaration_is_documented(
    path: str, method: str, statuses: list[int]
) -> None:
    assert [int(status) for status in described()["paths"][path][method]["responses"]] == statuses


def test_an_insecure_server_documents_its_own_problems() -> None:
    operation = described(is_insecure=True)["paths"]["/things"]["get"]

    assert "421" in operation["responses"]
    assert operation["security"] == [{"bearer": []}, {}]


def test_a_token_is_needed_unless_a_route_is_open() -> None:
    paths = described()["paths"]

    assert paths["/things"]["get"]["security"] == [{"bearer": []}]
    assert paths["/status"]["get"]["security"] == []


def test_an_operation_lists_the_roles_that_may_call_it() -> None:
    assert described()["paths"]["/things/{id}"]["delete"]["x-roles"] == ["admin"]
    assert described()["paths"]["/things"]["post"]["x-roles"] == ["operator", "admin"]


def test_a_partial_response_requires_no_members() -> None:
    response = ResponseSpec(status=200, description="A selection.", type=list[Outer], is_partial=True)

    routes, info = [route(OK, responses=(response,))], Info(title="", version="")
    content = json.loads(document(routes, info, permissions=PERMISSIONS))

    schemas = content["components"]["schemas"]
    schema = content["paths"]["/things"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"type": "array", "items": {"$ref": "#/components/schemas/PartialOuter"}}
    assert schemas["PartialOuter"]["properties"]["inner"] == {"$ref": "#/components/schemas/PartialThing"}
    assert not any("required" in schemas[name] for name in ("PartialOuter", "PartialThing"))
    assert schemas["Outer"]["required"] == ["inner", "more"]


def test_every_reference_resolves() -> None:
    content = described()
    references = re.findall(r'"#/components/(\w+)/([^"]+)"', json.dumps(content))

    assert references
    assert all(name in content["components"][kind] for kind, name in references)


class _Reader(HTMLParser):
    """Parses a page and collects what a browser would act on."""

    _VOID = frozenset(("meta", "br"))

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self._VOID:
            self._open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "srcset", "style", "onclick", "action")
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def read_page() -> tuple[_Reader, str]:
    content = document(ROUTES, Info(title="Things & more", version="1.2"), permissions=PERMISSIONS)
    response = await call(make_app(*openapi_routes(content)), "GET", "/docs")
    assert response.status == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    reader = _Reader()
    reader.feed(response.body.decode())
    reader.close()
    return reader, response.headers["content-security-policy"]


async def test_the_document_is_served() -> None:
    content = document(ROUTES, Info(title="Things", version="1.2"), permissions=PERMISSIONS)

    response = await call(make_app(*openapi_routes(content)), "GET", "/openapi.json")

    assert (response.body, response.headers["content-type"]) == (content, "application/json")


async def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page, policy = await read_page()

    assert not page.tags & {"script", "link", "img", "iframe", "form", "object", "svg"}
    assert all(link.startswith("#") or link == "/openapi.json" for link in page.links)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


async def test_every_link_of_the_page_has_one_target() -> None:
    page, _ = await read_page()

    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)


async def test_the_page_shows_every_operation_and_escapes_text() -> None:
    page, _ = await read_page()

    for route_ in ROUTES:
        assert (route_.path in page.text) is route_.is_documented
    assert "Something <b>bold</b>." in page.text
    assert '"name": "<a>"' in page.text
    assert "b" not in page.tags
