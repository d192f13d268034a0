"""What values may be, and what of a document the table knows."""

from __future__ import annotations

import math

import pytest

from sentinel.core import kdl
from sentinel.core.kdl import Scalar
from sentinel.core.proxy.schema import CURRENT
from sentinel.core.proxy.schema.types import (
    BOOLEAN,
    COUNT,
    DURATION,
    STATUS,
    TEXT,
    Address,
    Choice,
    Fault,
    HostPort,
    Number,
    Url,
    ValueType,
)
from tests.core.proxy.documents import check


@pytest.mark.parametrize(
    ("type_", "value", "fault"),
    [
        (Address(), "0.0.0.0:80", None),
        (Address(), "[::]:65535", None),
        (Address(), "[::1]:1", None),
        (Address(), "::1:80", Fault.ADDRESS),
        (Address(), "[127.0.0.1]:80", Fault.ADDRESS),
        (Address(), "[::1:80", Fault.ADDRESS),
        (Address(), "127.0.0.1", Fault.ADDRESS),
        (Address(), "127.0.0.1:", Fault.ADDRESS),
        (Address(), ":80", Fault.ADDRESS),
        (Address(), "127.0.0.256:80", Fault.ADDRESS),
        (Address(), "127.0.0.1:http", Fault.ADDRESS),
        (Address(), "127.0.0.1:-1", Fault.PORT),
        (Address(), "127.0.0.1:65536", Fault.PORT),
        (Address(), "127.0.0.1:" + "9" * 5000, Fault.PORT),
        (Address(), 80, Fault.TYPE),
        (HostPort(), "localhost:80", None),
        (HostPort(), "a_b.c-d.example.:1", None),
        (HostPort(), "10.0.0.1:80", None),
        (HostPort(), "[2001:db8::1]:80", None),
        (HostPort(), "10.0.0:80", Fault.ADDRESS),
        (HostPort(), "-a:80", Fault.ADDRESS),
        (HostPort(), "a b:80", Fault.ADDRESS),
        (HostPort(), "a..b:80", Fault.ADDRESS),
        (HostPort(), "a" * 300 + ":80", Fault.ADDRESS),
        (HostPort(), "http://a:80", Fault.ADDRESS),
        (HostPort(), "http://a:x", Fault.ADDRESS),
        (HostPort(), "a:0", Fault.PORT),
        (Url(), "http://a", None),
        (Url(), "https://user:password@a.example:8443/x?y#z", None),
        (Url(), "http://[::1]:80/", None),
        (Url(), "ftp://a", Fault.FORM),
        (Url(), "a:80", Fault.FORM),
        (Url(), "http://", Fault.FORM),
        (Url(), "http://-a", Fault.FORM),
        (Url(), "http://a:70000", Fault.PORT),
        (Url(), None, Fault.TYPE),
        (BOOLEAN, False, None),
        (BOOLEAN, "false", Fault.TYPE),
        (COUNT, 0, None),
        (COUNT, True, Fault.TYPE),
        (COUNT, 1.0, Fault.TYPE),
        (COUNT, -1, Fault.RANGE),
        (COUNT, 2**63, Fault.RANGE),
        (STATUS, 600, Fault.RANGE),
        (Number(0, 1), 0.5, None),
        (Number(0, 1), True, Fault.TYPE),
        (Number(0, 1), 2, Fault.RANGE),
        (Number(), math.nan, Fault.RANGE),
        (Number(), math.inf, Fault.RANGE),
        (TEXT, "", Fault.FORM),
        (DURATION, 30, None),
        (DURATION, "1.5 h", None),
        (DURATION, "soon", Fault.FORM),
        (DURATION, -1, Fault.RANGE),
        (DURATION, True, Fault.TYPE),
        (Choice(("a",), ("b",)), "b", None),
        (Choice(("a",)), "A", Fault.CHOICE),
        (Choice(("a",), is_any_case=True), "A", None),
        (Choice(("a",)), 1, Fault.TYPE),
    ],
)
def test_a_type_judges_a_value(type_: ValueType, value: Scalar, fault: Fault | None) -> None:
    assert type_.fault(value) is fault
    assert type_.expected


def test_every_type_accepts_its_own_example() -> None:
    for path, row in CURRENT.walk():
        for entry in (*row.arguments, *row.properties):
            assert entry.type.fault(entry.type.example) is None, path


def test_the_table_finds_the_rows_of_a_document() -> None:
    document = kdl.parse('system { daemon #true; colour 1 }\nfoo { user "a" }\nserver { user "b" }').document

    found = [(".".join(path), node.line, row.name) for path, node, row in CURRENT.match(document)]

    assert found == [
        ("system", 1, "system"),
        ("system.daemon", 1, "daemon"),
        ("server", 3, "server"),
        ("server.user", 3, "user"),
    ]


def test_only_system_and_listeners_need_a_restart() -> None:
    assert {row.name for row in CURRENT.top.rows if row.needs_restart} == {"system", "server", "listeners"}


def test_any_name_may_stand_in_the_settings_of_an_agent() -> None:
    text = (
        'system\nlisteners { listener "http" { address "127.0.0.1:80" } }\n'
        'agents { agent "a" type="waf" { http url="http://a"; config { x 1 { y #null z=2 } } } }'
    )

    assert check(text) == []


def test_a_route_may_set_a_header_to_nothing() -> None:
    text = (
        'system\nlisteners { listener "http" { address "127.0.0.1:80" } }\n'
        'routes { route "r" { priority "low"; builtin-handler "health"\n'
        'policies { response-headers { set { Server "" }; remove "X-A" "X-B" } } } }'
    )

    assert check(text) == []
