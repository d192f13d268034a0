"""Headers on their way through the proxy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.proxy.forwarded_headers import apply, end_to_end, with_forwarding
from sentinel.core.proxy.model import HeaderPolicy

_NAMES = st.sampled_from(("X-A", "x-a", "X-B", "Connection", "TE", "Host", "Content-Length"))
_HEADERS = st.lists(st.tuples(_NAMES, st.text("ab,", max_size=3)), max_size=6)


def test_headers_of_the_connection_stay_behind() -> None:
    headers = [("Host", "h"), ("Connection", "close, X-Secret"), ("x-secret", "1"), ("Upgrade", "h2c"), ("A", "1")]

    assert end_to_end(headers, connection="close, X-Secret") == [("Host", "h"), ("A", "1")]


def test_connection_cannot_remove_the_length_or_the_host() -> None:
    headers = [("Host", "h"), ("Content-Length", "3")]

    assert end_to_end(headers, connection="Content-Length, Host") == headers


@given(_HEADERS, st.text("ab,", max_size=3))
def test_what_is_left_keeps_its_order_and_its_values(headers: list[tuple[str, str]], connection: str) -> None:
    kept = end_to_end(headers, connection=connection)

    remaining = iter(headers)
    assert all(pair in remaining for pair in kept)
    assert not {"connection", "te"} & {name.lower() for name, _ in kept}


def test_the_client_is_appended_and_claims_of_the_client_are_replaced() -> None:
    headers = [("x-forwarded-for", "1.1.1.1"), ("X-Forwarded-Proto", "https"), ("Expect", "100-continue")]

    assert with_forwarding(headers, client="2.2.2.2", host="h", scheme="http") == [
        ("X-Forwarded-For", "1.1.1.1, 2.2.2.2"),
        ("X-Forwarded-Host", "h"),
        ("X-Forwarded-Proto", "http"),
    ]


def test_a_policy_renames_sets_adds_and_removes_in_this_order() -> None:
    policy = HeaderPolicy(
        rename=(("x-old", "X-New"),),
        set=(("X-Set", "1"),),
        add=(("X-New", "2"), ("X-Gone", "3")),
        remove=("x-gone",),
    )

    changed = apply(policy, [("X-Old", "0"), ("x-set", "0"), ("X-Kept", "0")])

    assert changed == [("X-New", "0"), ("X-Kept", "0"), ("X-Set", "1"), ("X-New", "2")]


@given(_HEADERS)
def test_an_empty_policy_changes_nothing(headers: list[tuple[str, str]]) -> None:
    assert apply(HeaderPolicy(), headers) == headers
