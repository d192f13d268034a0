"""The library internals that our code subclasses, hooks or parses are those of the pinned versions.

A changed internal would not fail at import: our method would no longer be called, or an error message no longer be
recognized. Each failure names the library and our modules to check.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import aio_pika.connection
import aiormq
import aiormq.abc
import aiormq.connection
import msgspec
import pamqp.constants
import pamqp.decode
import pamqp.frame
import pytest
import sqlalchemy.util
import uvicorn
import uvicorn.server
from cel_expr_python import cel  # type: ignore[import-untyped]  # its types are not marked as such
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from sqlalchemy import Column, Dialect, Integer, MetaData, String, Table, bindparam, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import asyncpg
from starlette.routing import Route
from uvicorn.protocols.http import httptools_impl

from sentinel.drivers.hub_client.client import OPTIONS
from sentinel.hub.grpc.listener import server_options

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"

MODULES = {
    "aio-pika": "sentinel/drivers/rabbitmq/connection.py",
    "aiormq": "sentinel/drivers/rabbitmq/channel.py and reader.py",
    "cel-expr-python": "sentinel/drivers/cel.py",
    "msgspec": "sentinel/web/decoding.py",
    "pamqp": "sentinel/drivers/rabbitmq/frames.py, reader.py and received.py",
    "SQLAlchemy": "sentinel/drivers/sql: the statements and the PostgreSQL session",
    "starlette": "sentinel/web/app.py",
    "uvicorn": "sentinel/web/server.py and connection.py",
}
"""Our modules that depend on the internals of each library."""


def changed(library: str, what: str) -> str:
    return f"{library} {version(library)} changed: {what}; check {MODULES[library]}"


@pytest.mark.parametrize("library", MODULES)
def test_a_library_with_hooked_internals_is_pinned_exactly(library: str) -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    required = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        required += extra

    pins = [each for each in required if re.match(rf"{library}\b(?!-)", each)]

    assert [re.sub(r"\[.*\]", "", pin) for pin in pins] == [f"{library}=={version(library)}"], (
        f"pyproject.toml requires {pins}, but {library} {version(library)} is installed: "
        f"pin the installed version exactly, and check {MODULES[library]}"
    )


class Call(NamedTuple):
    """A function that we override or call, with the expected parameters."""

    library: str
    owner: Any
    expected: str


CALLS = [
    # sentinel/web/server.py and connection.py
    Call("uvicorn", uvicorn.Server, "__init__(self, config)"),
    Call("uvicorn", uvicorn.Server, "async serve(self, sockets)"),
    Call("uvicorn", uvicorn.Server, "async startup(self, sockets)"),
    Call("uvicorn", uvicorn.Server, "async main_loop(self)"),
    Call("uvicorn", uvicorn.Server, "async on_tick(self, counter)"),
    Call("uvicorn", uvicorn.Server, "capture_signals(self)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "connection_made(self, transport)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "connection_lost(self, exc)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_message_begin(self)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_url(self, url)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_header(self, name, value)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_headers_complete(self)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_body(self, body)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_message_complete(self)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "on_response_complete(self)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "send_400_response(self, msg)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "_unsupported_upgrade_warning(self)"),
    Call("uvicorn", httptools_impl.HttpToolsProtocol, "_start_asgi_task(self, cycle, app)"),
    # sentinel/web/app.py
    Call("starlette", Route, "matches(self, scope)"),
    # sentinel/drivers/rabbitmq
    Call(
        "aiormq",
        aiormq.Channel,
        "__init__(self, connector, number, publisher_confirms, frame_buffer, on_return_raises)",
    ),
    Call("aiormq", aiormq.Channel, "async _on_confirm_frame(self, frame)"),
    Call("aiormq", aiormq.Channel, "async _on_return_frame(self, frame)"),
    Call("aiormq", aiormq.Channel, "async _get_frame(self)"),
    Call("aiormq", aiormq.Channel, "async _read_content(self, frame, header)"),
    Call("aiormq", aiormq.Connection, "async ready(self)"),
    Call("aiormq", aiormq.abc.ChannelFrame, "__init__(self, payload, should_close, drain_future)"),
    Call("aiormq", aiormq.connection.TransportFactory, "async create(self, url, kwargs)"),
    Call("pamqp", pamqp.frame, "marshal(frame_value, channel_id)"),
    Call("pamqp", pamqp.decode, "by_type(value, data_type, offset)"),
    Call("pamqp", pamqp.decode, "field_table(value)"),
    Call("pamqp", ContentHeader, "unmarshal(self, data)"),
    Call("pamqp", Basic.Properties, "amqp_type(attr)"),
    # sentinel/drivers/sql
    Call("SQLAlchemy", sqlalchemy.util, "async greenlet_spawn(fn, args, _require_await, kwargs)"),
    Call("SQLAlchemy", sqlalchemy.util, "await_only(awaitable)"),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.library}: {call.expected}")
def test_functions_that_we_override_or_call_have_known_parameters(call: Call) -> None:
    name = call.expected.removeprefix("async ").partition("(")[0]
    found = getattr(call.owner, name, None)

    shown = "nothing"
    if found is not None:
        parameters = ", ".join(inspect.signature(found).parameters)
        shown = f"{'async ' if inspect.iscoroutinefunction(found) else ''}{name}({parameters})"

    assert shown == call.expected, changed(call.library, f"expected {call.expected}, found {shown}")


class Attributes(NamedTuple):
    """Attributes that a library's method sets on `self` and that we read or replace."""

    library: str
    method: Any
    names: frozenset[str]


ATTRIBUTES = [
    Attributes("uvicorn", uvicorn.Server.__init__, frozenset(("server_state", "should_exit"))),
    Attributes("uvicorn", uvicorn.Server.startup, frozenset(("servers",))),
    Attributes("uvicorn", uvicorn.server.ServerState.__init__, frozenset(("connections", "tasks"))),
    Attributes(
        "uvicorn",
        httptools_impl.HttpToolsProtocol.__init__,
        frozenset(("cycle", "loop", "parser", "pipeline", "scope", "transport")),
    ),
    Attributes(
        "uvicorn",
        httptools_impl.RequestResponseCycle.__init__,
        frozenset(
            (
                "disconnected",
                "keep_alive",
                "message_event",
                "more_body",
                "response_complete",
                "transport",
                "waiting_for_100_continue",
            )
        ),
    ),
    Attributes(
        "aiormq",
        aiormq.Connection.__init__,
        frozenset(("_transport_factory", "channels", "write_queue")),
    ),
    Attributes("aio-pika", aio_pika.connection.Connection.__init__, frozenset(("kwargs", "transport"))),
]


@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=lambda each: each.method.__qualname__)
def test_attributes_that_we_read_or_replace_are_still_set(attributes: Attributes) -> None:
    source = inspect.getsource(attributes.method)

    missing = sorted(name for name in attributes.names if not re.search(rf"\bself\.{name}\b[^=\n]*=", source))

    assert not missing, changed(
        attributes.library, f"{attributes.method.__qualname__} no longer sets {', '.join(missing)}"
    )


def test_uvicorn_has_the_settings_that_we_use() -> None:
    given = {
        "interface", "http", "ws", "lifespan", "log_config", "log_level", "access_log", "server_header",
        "proxy_headers", "timeout_keep_alive",
    }  # fmt: skip

    missing = given - inspect.signature(uvicorn.Config).parameters.keys()

    assert not missing, changed("uvicorn", f"Config has no {sorted(missing)}")


async def _no_app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("this application is never called")


def test_starlette_compiles_paths_to_the_patterns_that_we_match() -> None:
    found = Route("/things/{id}", _no_app).path_regex.pattern

    assert found == "^/things/(?P<id>[^/]+)$", changed("starlette", f"the pattern of a route is {found}")


def test_uvicorn_has_the_status_lines_that_we_write() -> None:
    found = httptools_impl.STATUS_LINE[431]

    assert found == b"HTTP/1.1 431 Request Header Fields Too Large\r\n", changed(
        "uvicorn", f"a line of STATUS_LINE is {found!r}"
    )


def test_uvicorn_writes_headers_in_the_form_that_we_parse() -> None:
    source = inspect.getsource(httptools_impl.RequestResponseCycle.send)

    assert 'b": "' in source, changed("uvicorn", "a header is no longer written as `name: value`")
    assert "name.lower()" in source, changed("uvicorn", "header names are no longer written in lower case")


def test_aio_pika_passes_its_keyword_arguments_to_aiormq() -> None:
    source = inspect.getsource(aio_pika.connection.Connection.connect)

    assert "**self.kwargs" in source, changed("aio-pika", "connect() no longer passes `kwargs`")


def test_cel_has_the_error_messages_that_we_parse() -> None:
    environment = cel.NewEnv(variables={"x": cel.Type.DYN})
    with pytest.raises(RuntimeError) as caught:
        environment.compile("y")
    failed = [environment.compile(text).eval(data={"x": {}}).value() for text in ("x.key", "x + 1", "[1][2]")]

    assert [str(caught.value).splitlines()[0], *failed] == [
        "INVALID_ARGUMENT: ERROR: <input>:1:1: undeclared reference to 'y' (in container '')",
        'NOT_FOUND: Key not found in map : "key"',
        "UNKNOWN: No matching overloads found : _+_(map, int64)",
        "UNKNOWN: Index error: index=2 size=1",
    ], changed("cel-expr-python", "its error messages")


def test_pamqp_has_the_properties_that_our_frames_use() -> None:
    kinds = {
        "content_type": "shortstr", "content_encoding": "shortstr", "headers": "table", "delivery_mode": "octet",
        "priority": "octet", "correlation_id": "shortstr", "reply_to": "shortstr", "expiration": "shortstr",
        "message_id": "shortstr", "timestamp": "timestamp", "message_type": "shortstr", "user_id": "shortstr",
        "app_id": "shortstr", "cluster_id": "shortstr",
    }  # fmt: skip

    found = {name: Basic.Properties.amqp_type(name) for name in Basic.Properties.__slots__}

    assert list(found.items()) == list(kinds.items()), changed("pamqp", f"the properties are {found}")
    flags = [Basic.Properties.flags[name] for name in kinds]
    assert flags == [1 << 15 - place for place in range(len(kinds))], changed("pamqp", f"the flags are {flags}")
    assert (Basic.frame_id, pamqp.constants.FRAME_HEADER) == (60, 2), changed("pamqp", "its numbers of frames")


class Colour(StrEnum):
    RED = "red"


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1)] = 1
    colour: Colour = Colour.RED


Short = Annotated[str, msgspec.Meta(max_length=3)]


class Thing(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rules: dict[str, list[Rule]] = {}
    labels: dict[Short, Short] = {}
    owner: Rule | None = None
    at: datetime | None = None


MESSAGES = {
    b"[]": "Expected `object`, got `array`",
    b"{}": "Object missing required field `name`",
    b'{"name": 1}': "Expected `str`, got `int` - at `$.name`",
    b'{"name": "a", "nam": 1}': "Object contains unknown field `nam`",
    b'{"name": "a", "owner": {"sise": 1}}': "Object contains unknown field `sise` - at `$.owner`",
    b'{"name": "a", "owner": {"colour": "pink"}}': "Invalid enum value 'pink' - at `$.owner.colour`",
    b'{"name": "a", "rules": {"x": [{"size": 0}]}}': "Expected `int` >= 1 - at `$.rules[...][0].size`",
    b'{"name": "a", "labels": {"a": "long"}}': "Expected `str` of length <= 3 - at `$.labels[...]`",
    b'{"name": "a", "labels": {"long": "b"}}': "Expected `str` of length <= 3 - at `key` in `$.labels`",
    b'{"name": "a", "at": "now"}': "Invalid RFC3339 encoded datetime - at `$.at`",
    b'{"name": "a", "at": true}': "Expected `datetime | null`, got `bool` - at `$.at`",
}


@pytest.mark.parametrize(("body", "message"), MESSAGES.items(), ids=MESSAGES.values())
def test_msgspec_has_the_error_messages_that_decoding_parses(body: bytes, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=Thing)
    with pytest.raises(msgspec.ValidationError) as caught_tree:
        msgspec.convert(msgspec.json.decode(body), Thing)

    for actual in (str(caught.value), str(caught_tree.value)):
        assert actual == message, changed("msgspec", f"expected the message {message!r}, got {actual!r}")


def test_msgspec_has_the_same_message_for_a_query_parameter() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"size": "ten"}, Rule, strict=False)

    actual = str(caught.value)
    assert actual == "Expected `int`, got `str` - at `$.size`", changed(
        "msgspec", f"the message for text is {actual!r}"
    )


things = Table("things", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))
_is_wanted = things.c.id == bindparam("wanted")
DIALECTS: Mapping[str, tuple[Dialect, str]] = {
    "SQLite": (sqlite.dialect(), "UPDATE things SET name=? WHERE things.id = ? AND things.name != ?"),
    "PostgreSQL": (
        asyncpg.dialect(),  # type: ignore[no-untyped-call]  # SQLAlchemy leaves dialects untyped
        "UPDATE things SET name=$1::VARCHAR WHERE things.id = $2::INTEGER AND things.name != $3::VARCHAR",
    ),
}


@pytest.mark.parametrize(("dialect", "text"), DIALECTS.values(), ids=DIALECTS)
def test_sqlalchemy_compiles_to_text_and_an_order_of_values(dialect: Dialect, text: str) -> None:
    construct = update(things).where(_is_wanted, things.c.name != "constant")

    compiled = construct.compile(
        dialect=dialect, column_keys=["name"], compile_kwargs={"render_postcompile": True}
    )

    order = getattr(compiled, "positiontup", None)
    found = " ".join(str(compiled).split())
    assert found == text, changed("SQLAlchemy", f"expected {text!r}, got {found!r}")
    assert order == ["name", "wanted", "name_1"], changed("SQLAlchemy", f"the order of values is {order}")
    assert compiled.params["name_1"] == "constant", changed("SQLAlchemy", f"parameters are {compiled.params}")
    assert compiled.params["wanted"] is None, changed("SQLAlchemy", f"parameters are {compiled.params}")


@pytest.mark.parametrize("option", sorted({name for name, _ in (*server_options(), *OPTIONS)}))
def test_grpc_knows_the_options_of_our_channels(option: str) -> None:
    """It ignores the others silently."""
    spec = find_spec("grpc._cython.cygrpc")
    assert spec is not None
    assert spec.origin is not None
    library = Path(spec.origin).read_bytes()

    assert option.encode() + b"\0" in library
