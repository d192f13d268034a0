"""Bodies other than small JSON: text, bytes, forms, and JSON that contains a long string."""

from __future__ import annotations

import json

import msgspec
import pytest

from sentinel.web import forms, openapi
from sentinel.web.asgi import App
from sentinel.web.body import AnyBody, Body, BytesBody, FormBody, TextBody
from sentinel.web.problem import Problem
from sentinel.web.routing import Method, Request, Response
from tests.web.asgi_client import PERMISSIONS, call, make_app, returning, route

KDL = "application/kdl"
MIB = 1024 * 1024
BLOCK = 'upstream "api" {\n    target "10.0.0.1:8080" // é\n}\n'


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: str


class Login(msgspec.Struct, frozen=True):
    name: str
    password: str


def text_of(size: int) -> str:
    """Return a string of this many bytes in UTF-8, with quotes, line ends and braces like a configuration."""
    encoded = (BLOCK * (size // len(BLOCK) + 1)).encode()[: size - 2].decode(errors="ignore")
    return encoded + "\n" * (size - len(encoded.encode()))


async def echo_text(request: Request) -> Response:
    return Response(body=(await request.text()).encode(), content_type="text/plain")


async def echo_bytes(request: Request) -> Response:
    return Response(body=await request.body())


async def measure_content(request: Request) -> Response:
    return Response(body=b"%d" % len((await request.decode(Content)).content.encode()))


async def echo_form(request: Request) -> Response:
    form = await request.form()
    return Response(body=msgspec.json.encode([form.get("name"), form.get("absent", "-"), form.get_all("tick")]))


def text_app(*, limit: int = 2 * MIB, is_required: bool = True) -> App:
    body = TextBody(content_types=(KDL, "text/plain"), limit=limit, is_required=is_required)
    return make_app(route(echo_text, method=Method.POST, body=body))


def body_app(body: AnyBody) -> App:
    return make_app(route(echo_bytes, method=Method.POST, body=body))


@pytest.mark.parametrize("content_type", [KDL, "text/plain", "text/plain; charset=utf-8", "Text/Plain"])
async def test_a_text_body_is_accepted_unchanged(content_type: str) -> None:
    response = await call(
        text_app(), "POST", "/things", headers={"content-type": content_type}, body=BLOCK.encode()
    )

    assert (response.status, response.body.decode()) == (200, BLOCK)


@pytest.mark.parametrize("content_type", ["application/json", "text/html", "text/plain; charset=latin-1", ""])
async def test_a_text_body_of_another_type_or_charset_is_a_415(content_type: str) -> None:
    response = await call(text_app(), "POST", "/things", headers={"content-type": content_type}, body=b"a")

    assert (response.status, response.headers["accept"]) == (415, f"{KDL}, text/plain")


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        (b"a\nb\xff", "expected UTF-8, got a byte that is not", (2, 2)),
        ("é\xe9\0".encode(), "expected text, got a NUL character", (1, 3)),
        (b"a\n\n\0", "expected text, got a NUL character", (3, 1)),
    ],
)
async def test_invalid_text_is_a_400_with_its_position(body: bytes, message: str, place: tuple[int, int]) -> None:
    response = await call(text_app(), "POST", "/things", headers={"content-type": KDL}, body=body)

    assert (response.status, response.json["code"]) == (400, "HYPERFLEET-VAL-003")
    (error,) = response.json["errors"]
    assert (error["message"], (error["line"], error["column"])) == (message, place)


async def test_a_text_body_may_be_optional() -> None:
    required = await call(text_app(), "POST", "/things")
    optional = await call(text_app(is_required=False), "POST", "/things")

    assert (required.status, required.json["detail"]) == (400, "expected a body, got nothing")
    assert (optional.status, optional.body) == (200, b"")


async def test_a_text_body_is_accepted_up_to_its_limit() -> None:
    text = text_of(2 * MIB).encode()
    app, headers = text_app(), {"content-type": KDL}

    whole = await call(app, "POST", "/things", headers=headers, body=[text[:MIB], text[MIB:]])
    more = await call(app, "POST", "/things", headers=headers, body=[text, b"x"])

    assert (whole.status, whole.body) == (200, text)
    assert (more.status, more.json["code"]) == (413, "HYPERFLEET-LMT-002")


async def test_json_may_contain_a_string_of_two_mebibytes() -> None:
    text = text_of(2 * MIB)
    body, headers = json.dumps({"content": text}).encode(), {"content-type": "application/json"}

    responses = [
        await call(
            make_app(route(measure_content, method=Method.POST, body=Body(type=Content, limit=limit))),
            "POST",
            "/things",
            headers=headers,
            body=body,
        )
        for limit in (5 * MIB, MIB)
    ]

    assert [response.status for response in responses] == [200, 413]
    assert responses[0].body == b"%d" % (2 * MIB)


async def test_any_bytes_are_accepted() -> None:
    content = bytes(range(256))
    headers = {"content-type": "application/octet-stream; charset=none"}

    response = await call(body_app(BytesBody()), "POST", "/things", headers=headers, body=content)

    assert (response.status, response.body) == (200, content)


async def test_a_form_is_parsed() -> None:
    app = make_app(route(echo_form, method=Method.POST, body=FormBody(type=Login)))

    response = await call(
        app,
        "POST",
        "/things",
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=b"name=J%C3%BCrgen+M&empty=&tick=a&tick=b%26c",
    )

    assert response.json == ["Jürgen M", "-", ["a", "b&c"]]


async def test_a_form_of_another_type_or_too_large_is_rejected() -> None:
    app = make_app(route(echo_form, method=Method.POST, body=FormBody(type=Login, limit=10)))

    multipart = await call(app, "POST", "/things", headers={"content-type": "multipart/form-data"}, body=b"x")
    large = await call(
        app, "POST", "/things", headers={"content-type": forms.CONTENT_TYPE}, body=b"name=abcdefghi"
    )

    assert (multipart.status, large.status) == (415, 413)


def test_an_empty_field_is_present_and_an_absent_one_is_not() -> None:
    form = forms.parse(b"empty=&bare")

    assert ("empty" in form, "bare" in form, "absent" in form) == (True, True, False)
    assert form.get("empty", "default") == form.get("bare", "default") == ""
    assert form.get("absent", "default") == "default"
    assert list(form.get_all("absent")) == []


def test_an_unexpectedly_repeated_field_is_named() -> None:
    with pytest.raises(Problem) as rejected:
        forms.parse(b"name=a&name=b").get("name")

    assert (rejected.value.status, rejected.value.errors[0].field) == (400, "name")


@pytest.mark.parametrize("body", [b"\xff=a", b"name=%FF", b"%FF=a", b"name=%00", b"na%00me=a", b"a&" * 1000])
def test_an_invalid_form_is_rejected(body: bytes) -> None:
    with pytest.raises(Problem) as rejected:
        forms.parse(body)

    assert rejected.value.status == 400


def test_a_form_may_have_as_many_fields_as_the_limit() -> None:
    assert len(forms.parse(b"&".join([b"a=1"] * forms.MAX_FIELDS)).get_all("a")) == forms.MAX_FIELDS


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (TextBody(), Request.form),
        (BytesBody(), Request.text),
        (Body(type=dict), Request.text),
        (FormBody(type=Login), Request.text),
    ],
)
async def test_reading_another_body_than_declared_is_an_error(body: AnyBody, read: object) -> None:
    messages: list[str] = []

    async def handler(request: Request) -> Response:
        with pytest.raises(TypeError) as error:
            await read(request)  # type: ignore[operator]  # one of its methods
        messages.append(str(error.value))
        return Response()

    await call(make_app(route(handler, method=Method.POST, body=body)), "POST", "/things")

    assert messages == [f"POST /things declares a {type(body).__name__}"]


def test_the_document_describes_the_declared_bodies() -> None:
    def content(body: AnyBody) -> object:
        described = openapi.document(
            [route(returning(Response()), method=Method.POST, body=body)],
            openapi.Info(title="", version=""),
            permissions=PERMISSIONS,
        )
        return json.loads(described)["paths"]["/things"]["post"]["requestBody"]["content"]

    text, login = {"schema": {"type": "string"}}, {"schema": {"$ref": "#/components/schemas/Login"}}
    assert content(TextBody(content_types=(KDL, "text/plain"))) == {KDL: text, "text/plain": text}
    assert content(TextBody(example="system {\n}")) == {"text/plain": {**text, "example": "system {\n}"}}
    assert content(BytesBody()) == {"application/octet-stream": {}}
    assert content(FormBody(type=Login)) == {forms.CONTENT_TYPE: login}


async def test_the_page_shows_text_and_bytes_bodies() -> None:
    routes = [
        route(returning(Response()), method=Method.POST, body=TextBody(example='a "b"\nc')),
        route(returning(Response()), method=Method.PUT, body=BytesBody()),
    ]
    content = openapi.document(routes, openapi.Info(title="", version=""), permissions=PERMISSIONS)

    page = await call(make_app(*openapi.openapi_routes(content)), "GET", "/docs")

    assert "<pre>a &quot;b&quot;\nc</pre>" in page.body.decode()
    assert "any <span class='soft'>application/octet-stream</span>" in page.body.decode()
