"""The path of a request names a file below a directory, or nothing."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.proxy.file_path import segments


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", ()),
        ("/a/b.html", ("a", "b.html")),
        ("//a/./b", ("a", "b")),
        ("/a%20b", ("a b",)),
        ("/..", None),
        ("/a/../../etc/passwd", None),
        ("/%2e%2e/etc/passwd", None),
        ("/a%2f..%2fb", None),
        ("/..%5cb", None),
        ("/a%00b", None),
        ("/%ff", None),
    ],
)
def test_a_path_names_a_file_or_nothing(path: str, expected: tuple[str, ...] | None) -> None:
    assert segments(path) == expected


@given(st.text(alphabet="./\\%2eEfF5cC0a", max_size=20))
def test_no_path_leaves_the_directory(path: str) -> None:
    for variant in (path, quote(path)):
        found = segments(variant) or ()

        assert not {"", ".", ".."} & set(found)
        assert not any("/" in segment or "\\" in segment or "\0" in segment for segment in found)
