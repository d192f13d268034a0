"""Output is split into lines, which are bounded and redacted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.runtime.lifecycle.child_output import OutputLines
from sentinel.runtime.secrets import Redactor

SECRET = "swordfish-" * 20


def lines_of(*chunks: bytes) -> list[str]:
    lines: list[str] = []
    output = OutputLines(lines.append, redact=Redactor([SECRET]).redact)
    for chunk in chunks:
        output.feed(chunk)
    output.end()
    return lines


def test_lines_are_assembled_from_chunks() -> None:
    assert lines_of(b"on", b"e\ntwo\r\n\nthr", b"ee") == ["one", "two", "three"]


def test_invalid_utf8_is_replaced() -> None:
    assert lines_of(b"caf\xc3\xa9 \xff\n") == ["café \ufffd"]


@pytest.mark.parametrize("length", [8_193, 10_000, 12_289, 500_000])
def test_an_overlong_line_is_cut_and_the_next_one_is_whole(length: int) -> None:
    first, second = lines_of(b"x" * (length // 2), b"x" * (length - length // 2), b"\nnext\n")

    assert first == "x" * 8192 + "…"
    assert second == "next"


def test_a_secret_split_over_reads_is_masked() -> None:
    half = len(SECRET) // 2

    assert lines_of(f"key {SECRET[:half]}".encode(), f"{SECRET[half:]} ok\n".encode()) == ["key *** ok"]


@given(st.integers(min_value=0, max_value=14_000), st.integers(min_value=0, max_value=60))
def test_a_cut_line_never_contains_part_of_a_secret(position: int, others: int) -> None:
    text = f"{SECRET} " * others + "." * position + SECRET + "." * 20_000

    (line,) = lines_of(text.encode() + b"\n")

    assert set(line) <= set("*. …")
    assert len(line) <= 8193


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    assert lines_of(*chunks) == lines_of(b"".join(chunks))
