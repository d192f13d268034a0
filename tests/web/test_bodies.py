"""Bodies other than JSON of the usual size: texts, bytes, forms, and JSON that contains a long text."""

from __future__ import annotations

import json

import msgspec
import pytest

from sentinel.web import forms, openapi
from sentinel.web.asgi import App
from sentinel.web.body import AnyBody, Body, BytesBody, FormBody, TextBody
from sentinel.web.problem import Problem
from sentinel.web.routing import Method, Request, Response
from tests.web.calling import PERMISSIONS, answering, app_of, call, route

KDL = "application/kdl"
MIB = 1024 * 1024
BLOCK = 'upstream "api" {\n    target "10.0.0.1:8080" // é\n}\n'


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: str


class Login(msgspec.Struct, frozen=True):
    name: str
    password: str


def text_of(size: int) -> str:
    """A text of this many bytes in UTF-8, with quotes, line ends and braces, as configurations have."""
    encoded = (BLOCK * (size // len(BLOCK) + 1)).encode()[: size - 2].decode(errors="ignore")
    return encoded + "\n" * (size - len(encoded.encode()))


async def give_text(request: Request) -> Response:
    return Response(body=(await request.text()).encode(), content_type="text/plain")


async def give_bytes(request: Request) -> Response:
    return Response(body=await request.body())


async def measure_content(request: Request) -> Response:
    return Response(body=b"%d" % len((await request.decode(Content)).content.encode()))


async def give_form(request: Request) -> Response:
    form = await request.form()
    return Response(body=msgspec.json.encode([form.get("name"), form.get("absent", "-"), form.get_all("tick")]))


def taking_text(*, limit: int = 2 * MIB, is_required: bool = True) -> App:
    body = TextBody(content_types=(KDL, "text/plain"), limit=limit, is_required=is_required)
    return app_of(route(give_text, method=Method.POST, body=body))


def taking(body: AnyBody) -> App:
    return app_of(route(give_bytes, method=Method.POST, body=body))


@pytest.mark.parametrize("content_type", [KDL, "text/plain", "text/plain; charset=utf-8", "Text/Plain"])
async def test_a_text_is_taken_as_it_is(content_type: str) -> None:
    answered = await call(
        taking_text(), "POST", "/things", headers={"content-type": content_type}, body=BLOCK.encode()
    )

    assert (answered.status, answered.body.decode()) == (200, BLOCK)


@pytest.mark.parametrize("content_type", ["application/json", "text/html", "text/plain; charset=latin-1", ""])
async def test_a_text_of_another_type_or_charset_is_a_415(content_type: str) -> None:
    answered = await call(taking_text(), "POST", "/things", headers={"content-type": content_type}, body=b"a")

    assert (answered.status, answered.headers["accept"]) == (415, f"{KDL}, text/plain")


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        (b"a\nb\xff", "expected UTF-8, got a byte that is not", (2, 2)),
        ("é\xe9\0".encode(), "expected text, got a NUL character", (1, 3)),
        (b"a\n\n\0", "expected text, got a NUL character", (3, 1)),
    ],
)
async def test_what_is_not_text_is_a_400_with_its_place(body: bytes, message: str, place: tuple[int, int]) -> None:
    answered = await call(taking_text(), "POST", "/things", headers={"content-type": KDL}, body=body)

    assert (answered.status, answered.json["code"]) == (400, "HYPERFLEET-VAL-003")
    (error,) = answered.json["errors"]
    assert (error["message"], (error["line"], error["column"])) == (message, place)


async def test_a_text_may_be_required_or_not() -> None:
    required = await call(taking_text(), "POST", "/things")
    optional = await call(taking_text(is_required=False), "POST", "/things")

    assert (required.status, required.json["detail"]) == (400, "expected a body, got nothing")
    assert (optional.status, optional.body) == (200, b"")


async def test_a_text_of_two_mebibytes_is_taken_and_no_more() -> None:
    text = text_of(2 * MIB).encode()
    app, headers = taking_text(), {"content-type": KDL}

    whole = await call(app, "POST", "/things", headers=headers, body=[text[:MIB], text[MIB:]])
    more = await call(app, "POST", "/things", headers=headers, body=[text, b"x"])

    assert (whole.status, whole.body) == (200, text)
    assert (more.status, more.json["code"]) == (413, "HYPERFLEET-LMT-002")


async def test_json_may_contain_a_text_of_two_mebibytes_where_its_limit_says_so() -> None:
    text = text_of(2 * MIB)
    body, headers = json.dumps({"content": text}).encode(), {"content-type": "application/json"}

    answers = [
        await call(
            app_of(route(measure_content, method=Method.POST, body=Body(type=Content, limit=limit))),
            "POST",
            "/things",
            headers=headers,
            body=body,
        )
        for limit in (5 * MIB, MIB)
    ]

    assert [answer.status for answer in answers] == [200, 413]
    assert answers[0].body == b"%d" % (2 * MIB)


async def test_bytes_are_taken_whatever_they_are() -> None:
    content = bytes(range(256))
    headers = {"content-type": "application/octet-stream; charset=none"}

    answered = await call(taking(BytesBody()), "POST", "/things", headers=headers, body=content)

    assert (answered.status, answered.body) == (200, content)


async def test_a_form_is_read() -> None:
    app = app_of(route(give_form, method=Method.POST, body=FormBody(type=Login)))

    answered = await call(
        app,
        "POST",
        "/things",
        headers={"content-type": "application/x-www-form-urlencoded"},
        body=b"name=J%C3%BCrgen+M&empty=&tick=a&tick=b%26c",
    )

    assert answered.json == ["Jürgen M", "-", ["a", "b&c"]]


async def test_a_form_of_another_type_or_too_large_is_refused() -> None:
    app = app_of(route(give_form, method=Method.POST, body=FormBody(type=Login, limit=10)))

    multipart = await call(app, "POST", "/things", headers={"content-type": "multipart/form-data"}, body=b"x")
    large = await call(
        app, "POST", "/things", headers={"content-type": forms.CONTENT_TYPE}, body=b"name=abcdefghi"
    )

    assert (multipart.status, large.status) == (415, 413)


def test_a_field_that_is_empty_is_there_and_one_that_is_absent_is_not() -> None:
    form = forms.parse(b"empty=&bare")

    assert ("empty" in form, "bare" in form, "absent" in form) == (True, True, False)
    assert form.get("empty", "default") == form.get("bare", "default") == ""
    assert form.get("absent", "default") == "default"
    assert list(form.get_all("absent")) == []


def test_a_field_that_should_come_once_and_does_not_is_named() -> None:
    with pytest.raises(Problem) as refused:
        forms.parse(b"name=a&name=b").get("name")

    assert (refused.value.status, refused.value.errors[0].field) == (400, "name")


@pytest.mark.parametrize("body", [b"\xff=a", b"name=%FF", b"%FF=a", b"name=%00", b"na%00me=a", b"a&" * 1000])
def test_a_form_that_is_not_text_or_has_too_many_fields_is_refused(body: bytes) -> None:
    with pytest.raises(Problem) as refused:
        forms.parse(body)

    assert refused.value.status == 400


def test_a_form_may_have_as_many_fields_as_the_limit_says() -> None:
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
async def test_a_handler_that_reads_another_body_than_it_declares_is_told(body: AnyBody, read: object) -> None:
    told: list[str] = []

    async def handler(request: Request) -> Response:
        with pytest.raises(TypeError) as error:
            await read(request)  # type: ignore[operator]  # one of its methods
        told.append(str(error.value))
        return Response()

    await call(app_of(route(handler, method=Method.POST, body=body)), "POST", "/things")

    assert told == [f"POST /things declares a {type(body).__name__}"]


def test_the_document_says_what_is_taken() -> None:
    def content(body: AnyBody) -> object:
        described = openapi.document(
            [route(answering(Response()), method=Method.POST, body=body)],
            openapi.Info(title="", version=""),
            permissions=PERMISSIONS,
        )
        return json.loads(described)["paths"]["/things"]["post"]["requestBody"]["content"]

    text, login = {"schema": {"type": "string"}}, {"schema": {"$ref": "#/components/schemas/Login"}}
    assert content(TextBody(content_types=(KDL, "text/plain"))) == {KDL: text, "text/plain": text}
    assert content(TextBody(example="system {\n}")) == {"text/plain": {**text, "example": "system {\n}"}}
    assert content(BytesBody()) == {"application/octet-stream": {}}
    assert content(FormBody(type=Login)) == {forms.CONTENT_TYPE: login}


async def test_the_page_shows_texts_as_they_are_and_bytes_as_anything() -> None:
    routes = [
        route(answering(Response()), method=Method.POST, body=TextBody(example='a "b"\nc')),
        route(answering(Response()), method=Method.PUT, body=BytesBody()),
    ]
    content = openapi.document(routes, openapi.Info(title="", version=""), permissions=PERMISSIONS)

    page = await call(app_of(*openapi.openapi_routes(content)), "GET", "/docs")

    assert "<pre>a &quot;b&quot;\nc</pre>" in page.body.decode()
    assert "any <span class='soft'>application/octet-stream</span>" in page.body.decode()
