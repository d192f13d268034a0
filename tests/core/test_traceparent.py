"""Valid `traceparent` headers name a span, all others are ignored."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentinel.core import traceparent
from sentinel.core.traceparent import TraceParent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"

parents = st.builds(TraceParent, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), is_sampled=st.booleans())


@given(parents)
def test_a_rendered_header_names_the_same_span(parent: TraceParent) -> None:
    assert traceparent.parse(str(parent)) == parent


@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.*"))
@example(HEADER)
def test_any_text_is_a_span_with_nonzero_ids_or_ignored(text: str) -> None:
    parent = traceparent.parse(text)

    if parent is not None:
        assert (parent.trace_id, parent.span_id) == (int(text[3:35], 16), int(text[36:52], 16))
        assert parent.trace_id
        assert parent.span_id


@pytest.mark.parametrize(
    ("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)]
)
def test_only_the_sampled_flag_is_read(flags: str, is_sampled: bool) -> None:
    assert traceparent.parse(f"00-{TRACE}-{SPAN}-{flags}") == TraceParent(
        int(TRACE, 16), int(SPAN, 16), is_sampled
    )


@pytest.mark.parametrize(
    "header", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-more", f"fe-{TRACE}-{SPAN}-01-"]
)
def test_newer_versions_may_append_fields(header: str) -> None:
    assert traceparent.parse(header) == traceparent.parse(HEADER)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"{HEADER}-more",
        f"{HEADER}-",
        f"01-{TRACE}-{SPAN}-01.more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"{HEADER}\n",
        f" {HEADER}",
        f"{HEADER}, {HEADER}",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_an_invalid_header_is_ignored(header: str) -> None:
    assert traceparent.parse(header) is None
