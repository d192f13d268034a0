"""Malicious and malformed requests get a problem that names the field, and never a server error."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.web.routing import Method, Route
from sentinel.web.strict_json import MAX_DEPTH
from tests.support.databases import backends
from tests.support.examples import examples
from tests.support.fleet.api_client import ApiClient, ApiReply
from tests.support.fleet.http_client import ROOT

JSON = {"content-type": "application/json"}
BODIES = [
    pytest.param("POST", "clusters", b'{"name":"n","spec":%b}', "spec.x", id="create"),
    pytest.param("PATCH", "clusters/one", b'{"spec":%b}', "spec.x", id="patch"),
    pytest.param(
        "POST",
        "clusters/one/statuses",
        b'{"adapter":"dns","observed_generation":1,"observed_time":"2025-01-01T00:00:00Z","conditions":[],"data":%b}',
        "data.x",
        id="report",
    ),
]
"""Requests whose body can contain any JSON, and the path of its member x."""


@pytest.fixture(autouse=True)
async def _one(fleet: ApiClient) -> None:
    await fleet.create("clusters", "one", id="one")


async def send(fleet: ApiClient, method: str, path: str, body: bytes, **headers: str) -> ApiReply:
    fields = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return await fleet.send(method, f"{ROOT}/{path}", body, headers=fields)


# --- Bodies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "around", "_field"), BODIES)
async def test_ten_megabytes_are_too_large(
    fleet: ApiClient, method: str, path: str, around: bytes, _field: str
) -> None:
    body = around % (b'{"x":"' + b"x" * 10_000_000 + b'"}')

    (await send(fleet, method, path, body)).assert_problem(413, code="HYPERFLEET-LMT-002")


async def test_a_body_longer_than_its_content_length_is_rejected(fleet: ApiClient) -> None:
    reply = await send(fleet, "POST", "clusters", b"x" * 2_000_000, content_length="10")

    reply.assert_problem(413)


@pytest.mark.parametrize(("method", "path", "around", "field"), BODIES)
@pytest.mark.parametrize("levels", [65, 10_000, 40_000])
async def test_ten_thousand_levels_are_too_deep(
    fleet: ApiClient, method: str, path: str, around: bytes, field: str, levels: int
) -> None:
    for opening, closing, step in ((b"[", b"]", "[0]"), (b'{"x":', b"}", ".x")):
        for end in (closing * levels, b""):
            body = around % (b'{"x":' + opening * levels + b"1" + end + b"}")
            reply = await send(fleet, method, path, body)
            reply.assert_problem(400, field + step * (MAX_DEPTH - 2), code="HYPERFLEET-VAL-003")


@pytest.mark.parametrize(("method", "path", "around", "field"), BODIES)
@pytest.mark.parametrize(
    "value",
    [
        b"9223372036854775808",
        b"-9223372036854775809",
        b"1" * 5000,
        b"1e400",
        b"-1e400",
        b"NaN",
        b"Infinity",
        b'"\\u0000"',
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
    ],
)
async def test_values_that_cannot_be_stored_are_named(
    fleet: ApiClient, method: str, path: str, around: bytes, field: str, value: bytes
) -> None:
    (await send(fleet, method, path, around % (b'{"y":1,"x":' + value + b"}"))).assert_problem(400, field)


@pytest.mark.parametrize(("method", "path", "around", "field"), BODIES)
async def test_duplicate_keys_are_named(
    fleet: ApiClient, method: str, path: str, around: bytes, field: str
) -> None:
    (await send(fleet, method, path, around % b'{"x":1,"x":2}')).assert_problem(400, field)
    # The same key, escaped and not escaped.
    (await send(fleet, method, path, around % b'{"x":1,"\\u0078":1}')).assert_problem(400, field)


@pytest.mark.parametrize(("method", "path", "around", "_field"), BODIES)
@pytest.mark.parametrize("value", [b'{"x":"\xff"}', b'{"x":"\xc0\x80"}', b'{"x":"\xed\xa0\x80"}', b'{"\xfe":1}'])
async def test_invalid_utf8_is_rejected_with_its_position(
    fleet: ApiClient, method: str, path: str, around: bytes, _field: str, value: bytes
) -> None:
    document = (await send(fleet, method, path, around % value)).assert_problem(400, "", code="HYPERFLEET-VAL-003")

    assert document["errors"][0]["line"] == 1
    assert document["errors"][0]["column"] > 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b'{"name":}',
        b'{"name":"a",}',
        b"{'name':'a'}",
        b'{"name":"a"}{"name":"b"}',
        b'{"name":"a"} x',
        b"nul",
        b'"\x00"',
        b"\x00",
        b"\xef\xbb\xbf{}",
        b'{"name":"a\x01"}',
        b'{"name":"\\x"}',
        b'{"name":01}',
        b"\xff\xfe{\x00}\x00",
        b'{"a":' * 40 + b"]" * 40,
    ],
)
async def test_invalid_json_is_rejected(fleet: ApiClient, body: bytes) -> None:
    for method, path in (("POST", "clusters"), ("PATCH", "clusters/one"), ("PUT", "clusters/one/statuses")):
        (await send(fleet, method, path, body)).assert_problem(400, "", code="HYPERFLEET-VAL-003")


@pytest.mark.parametrize("body", [b"null", b"1", b'"x"', b"[]", b"true", b'[{"name":"a"}]'])
async def test_json_that_is_not_an_object_is_rejected(fleet: ApiClient, body: bytes) -> None:
    for method, path in (
        ("POST", "clusters"),
        ("PATCH", "clusters/one"),
        ("PUT", "clusters/one/statuses"),
        ("POST", "clusters/one/force-delete"),
    ):
        (await send(fleet, method, path, body)).assert_problem(400, "")


async def test_a_thousand_labels_are_too_many(fleet: ApiClient) -> None:
    labels = {f"key-{number}": "v" for number in range(1000)}

    (await fleet.call("POST", "clusters", {"name": "n", "labels": labels})).assert_problem(400, "labels")
    (await fleet.call("PATCH", "clusters/one", {"labels": labels})).assert_problem(400, "labels")


@pytest.mark.parametrize("key", ["", " ", "a b", "/", "a/b/c", "ä", "a\n", '"', "x" * 1000, "a.", "__proto__"])
async def test_labels_with_invalid_keys_are_named(fleet: ApiClient, key: str) -> None:
    reply = await fleet.call("POST", "clusters", {"name": "n", "labels": {key: "v"}})

    assert reply.status == 400
    assert [field.startswith("labels.") for field in reply.fields] == [True]


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("name", [1, None, True, [], {}]),
        ("spec", [1, None, True, "x", []]),
        ("labels", [1, None, True, "x", []]),
        ("kind", [1, None, True, [], {}]),
        ("id", [1, None, True, [], {}]),
        ("owner_references", [1, None, True, "x", [], [{"id": "one"}]]),
    ],
)
async def test_a_member_of_the_wrong_type_is_named(fleet: ApiClient, member: str, values: list[object]) -> None:
    for value in values:
        (await fleet.call("POST", "clusters", {"name": "n", member: value})).assert_problem(400, member)


@pytest.mark.parametrize("member", ["Name", "status", "generation", "deleted_time", "", "a.b", "x" * 500, "$ref"])
async def test_unknown_members_are_named(fleet: ApiClient, member: str) -> None:
    reply = await fleet.call("POST", "clusters", {"name": "n", member: 1})

    assert reply.status == 400
    assert len(reply.fields) == 1


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"content-type": content_type}
            for content_type in (
                "text/plain",
                "",
                "application/xml",
                "application/json; charset=utf-16",
                "multipart/form-data; boundary=x",
            )
        ),
        {"content-encoding": "gzip"},
    ],
)
async def test_other_content_than_json_is_rejected(fleet: ApiClient, headers: dict[str, str]) -> None:
    reply = await fleet.send("POST", f"{ROOT}/clusters", b'{"name":"n"}', headers=JSON | headers)

    assert reply.status == 415


@pytest.mark.parametrize(("length", "status"), [("9" * 5000, 413), ("-1", 201), ("x", 201)])
async def test_a_wrong_content_length_is_rejected_or_ignored(fleet: ApiClient, length: str, status: int) -> None:
    reply = await fleet.send(
        "POST", f"{ROOT}/clusters", b'{"name":"n"}', headers=JSON | {"content-length": length}
    )

    assert reply.status == status


# --- Paths and queries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "segment",
    [
        "..",
        ".",
        "a/b",
        "a%2Fb",
        "%00",
        "é",
        "'; DROP TABLE resources; --",
        "x" * 5000,
        " ",
        "{id}",
        "*",
        "one ",
        "ONE",
    ],
)
async def test_unusual_ids_are_not_found(fleet: ApiClient, segment: str) -> None:
    for path in (f"clusters/{segment}", f"clusters/{segment}/statuses", f"clusters/{segment}/nodepools"):
        reply = await fleet.call("GET", path)
        assert reply.status == 404, reply
        assert reply.json["code"].startswith("HYPERFLEET-NTF-")


async def test_a_nul_in_a_path_is_named(fleet: ApiClient) -> None:
    (await fleet.call("GET", "clusters/a\0b")).assert_problem(400, "id")
    (await fleet.call("GET", "clusters/a\0b/nodepools/x")).assert_problem(400, "parent_id")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (b"labels=a%00", "labels"),
        (b"size=9223372036854775808", "size"),
        (b"page=-9223372036854775809", "page"),
        (b"size=1.5", "size"),
        (b"size=+10", "size"),
        (b"page=0x10", "page"),
        (b"page=NaN", "page"),
        (b"labels=" + b"a," * 3000, "labels"),
        (b"labels=a+in+(" + b"v," * 2000 + b")", "labels"),
        (b"fields=" + b"a," * 600, "fields"),
        (b"fields=a%22b", "fields"),
        (b"order=name;drop", "order"),
        (b"order=" + b"x" * 5000, "order"),
        (b"after=" + b"A" * 5000, "after"),
        (b"after=%F0%9F%92%A9", "after"),
        (b"unknown=1", "unknown"),
        (b"size", "size"),
    ],
)
async def test_invalid_parameters_are_named(fleet: ApiClient, query: bytes, field: str) -> None:
    (await fleet.send("GET", f"{ROOT}/clusters", query=query)).assert_problem(400, field)


@pytest.mark.parametrize(
    "query", [b"labels=%ff", b"%ff=1", b"&".join(b"a%d=1" % number for number in range(1000))]
)
async def test_a_malformed_query_is_rejected(fleet: ApiClient, query: bytes) -> None:
    assert (await fleet.send("GET", f"{ROOT}/clusters", query=query)).status == 400


@pytest.mark.parametrize(
    "header", ["If-Match", "If-None-Match", "Idempotency-Key", "Authorization", "X-Request-Id"]
)
@pytest.mark.parametrize("value", ["", "\xff", "x" * 10_000, '"' * 1000, ",", "\x7f", "*" * 100])
async def test_unusual_headers_cause_no_server_error(fleet: ApiClient, header: str, value: str) -> None:
    for method, path, body in (
        ("GET", "clusters/one", None),
        ("POST", "clusters", {"name": "n"}),
        ("PATCH", "clusters/one", {"spec": {}}),
        ("DELETE", "clusters/one", None),
    ):
        assert (await fleet.call(method, path, body, headers={header: value})).status < 500


async def test_a_secret_in_a_request_is_not_in_the_response(fleet: ApiClient) -> None:
    reply = await fleet.call("GET", "clusters", headers={"Authorization": "Bearer hunter2"}, size=0)

    assert b"hunter2" not in reply.content


# --- Forged cursors ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    backend = None
    if request.param == "sqlite":
        backend = backends.sql(f"sqlite:///{tmp_path / 'fleet.db'}")
    async with ApiClient(backend=backend) as client:
        for name in "abc":
            await client.create("clusters", name)
        yield client


@pytest.mark.parametrize(
    "position",
    [
        {"page": 2, "total": 3, "place": [2**63 - 1, "x"]},
        {"page": 2, "total": 3, "place": [-(2**63), "x"]},
        {"page": 2**53, "total": 2**53, "place": [0, ""]},
        {"page": 2, "total": 3, "place": ["text", "x"]},
        {"page": 2, "total": 3, "place": [1.5, "x"]},
        {"page": 0, "total": 3, "place": [1, "x"]},
        {"page": 2, "total": -1, "place": [1, "x"]},
        {"page": 2, "total": 3, "place": [1]},
        {"page": 2, "total": 3, "place": [1, "x" * 3000]},
        {"page": 2, "total": 3, "place": [1, "'\"; --"]},
        {},
        [],
        1,
    ],
)
async def test_a_forged_cursor_gives_a_page_or_a_400(stored: ApiClient, position: object) -> None:
    real = (await stored.get("clusters", size=1))["next"]
    fingerprint = _decode_base64(real)[:8]

    reply = await stored.call("GET", "clusters", after=_encode_base64(fingerprint + msgspec.json.encode(position)))

    assert reply.status == 200 or reply.assert_problem(400, "after")


def _decode_base64(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def _encode_base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


# --- Generated requests ------------------------------------------------------------------------------------------

text = st.text(max_size=20) | st.sampled_from(
    ["one", "..", "*", "Cluster", "dns", "a=b", "name", "id", '"1"', "Available"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)
NAMES = ["name", "spec", "labels", "kind", "id", "owner_references", "reason", "adapter", "observed_generation"]
NAMES += ["observed_time", "conditions", "data", "metadata", "type", "status", "message"]
bodies = anything | st.dictionaries(st.sampled_from(NAMES), anything, max_size=6)
queries = st.dictionaries(
    st.sampled_from(["page", "size", "after", "labels", "fields", "order", "actor", "x"]),
    text | st.integers(),
    max_size=3,
)
segments = st.sampled_from(["one", "pool", "missing", "..", "%2e"]) | st.text(max_size=10)
headers = st.dictionaries(
    st.sampled_from(["If-Match", "If-None-Match", "Idempotency-Key"]),
    st.text(st.characters(max_codepoint=255, min_codepoint=32), max_size=10),
    max_size=1,
)
ROUTES = ApiClient().routes


class GeneratedRequest(msgspec.Struct):
    """A generated request."""

    route: Route
    path: str
    body: bytes
    query: dict[str, Any]
    headers: dict[str, str]


@st.composite
def generated_requests(draw: st.DrawFn) -> GeneratedRequest:
    route = draw(st.sampled_from(ROUTES))
    path = route.path
    for name in route.template_names:
        path = path.replace(f"{{{name}}}", draw(segments))
    body = b"" if route.body is None else _encoded(draw(bodies))
    fields = draw(headers) | ({"content-type": route.body.content_types[0]} if route.body else {})
    return GeneratedRequest(route, path, body, draw(queries), fields)


def _encoded(value: object) -> bytes:
    # Python's encoder writes NaN, lone surrogates and integers of any size.
    return json.dumps(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as created:
        yield created


@pytest.fixture(scope="module")
def target(runner: asyncio.Runner) -> ApiClient:
    """One server for all examples, so that each example sees the state that earlier ones left."""

    async def create_fleet() -> ApiClient:
        client = ApiClient()
        await client.backend.database.open()
        await client.create("clusters", "one", id="one")
        await client.create("clusters/one/nodepools", "pool", id="pool")
        return client

    return runner.run(create_fleet())


@settings(
    max_examples=examples(600),
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(generated=generated_requests())
def test_no_request_causes_a_server_error(
    runner: asyncio.Runner, target: ApiClient, generated: GeneratedRequest
) -> None:
    reply = runner.run(
        target.send(
            generated.route.method.value,
            generated.path,
            generated.body,
            headers=generated.headers,
            query=generated.query,
        )
    )

    assert reply.status < 500, reply
    if reply.status >= 400:
        assert reply.headers["content-type"] == "application/problem+json"
        if reply.status == 400:
            assert reply.fields, reply
    elif generated.route.method is Method.GET and reply.status == 200:
        assert reply.json
