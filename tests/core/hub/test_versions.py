from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentinel.core.hub import versions
from sentinel.core.hub.versions import MAX_NUMBER, VersionName

SEGMENT = string.ascii_letters + string.digits + "._~-"
config_ids = st.text(SEGMENT, min_size=1, max_size=128).filter(lambda text: text not in (".", ".."))


@given(config_ids, st.integers(1, MAX_NUMBER))
def test_a_name_is_read_as_it_is_written(config_id: str, number: int) -> None:
    name = VersionName(config_id, number)

    assert versions.parse(str(name)) == name


@given(st.text())
@example("api@1")
def test_what_is_read_is_written_as_it_was(text: str) -> None:
    name = versions.parse(text)

    assert name is None or str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api",
        "api@",
        "@1",
        "api@0",
        "api@01",
        "api@-1",
        "api@+1",
        "api@1.0",
        "api@1 ",
        "api@1\n",
        "api@\u0661",
        "a/b@1",
        "a@b@1",
        "..@1",
        f"{'a' * 129}@1",
        f"api@{MAX_NUMBER + 1}",
        f"api@{'9' * 5_000}",
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    assert versions.parse(text) is None


def test_the_largest_number_is_that_of_32_bits() -> None:
    assert versions.parse("api@2147483647") == VersionName("api", 2_147_483_647)


def test_versions_of_one_configuration_have_an_order() -> None:
    assert VersionName("api", 9) < VersionName("api", 10)


@pytest.mark.parametrize(("text", "is_valid"), [("api", True), ("A.b_c~d-1", True), ("a@b", False), ("", False)])
def test_the_id_of_a_configuration_is_a_segment_of_a_url(text: str, is_valid: bool) -> None:
    assert versions.is_config_id(text) is is_valid


def test_a_hash_is_that_of_the_content_in_utf_8() -> None:
    expected = "b51c854170449c382397a108bc58403e78fb72c80a1b2b0674b30ea3b88a19f0"  # printf über | sha256sum

    assert versions.content_hash("über") == expected
