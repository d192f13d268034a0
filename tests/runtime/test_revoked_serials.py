"""The file of revoked certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import revoked_serials


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "revoked"


def test_serials_are_read_in_every_form_that_openssl_prints(path: Path) -> None:
    path.write_text("# leavers\n3fa0\n\n  00:3F:A1 # edge-2\r\n3FA2\n0003fa3")

    assert revoked_serials.read(path) == {0x3FA0, 0x3FA1, 0x3FA2, 0x3FA3}


@pytest.mark.parametrize("text", ["edge-1", "0x3fa0", "3f a0", "-1", "é", "::", "f" * 65])
def test_the_error_names_the_line_that_is_no_serial(path: Path, text: str) -> None:
    path.write_text(f"3fa0\n{text}\n")

    with pytest.raises(Misconfigured) as caught:
        revoked_serials.read(path)

    assert str(caught.value) == f"{path}:2: expected the serial of a certificate in hexadecimal"


def test_bytes_that_are_no_text_are_an_error(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\n")

    with pytest.raises(Misconfigured, match=r"revoked:1: expected the serial"):
        revoked_serials.read(path)


def test_a_missing_file_is_an_error(path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"revoked: cannot be read: no such file"):
        revoked_serials.read(path)


def test_a_file_without_limits_is_an_error(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(17 << 20)

    with pytest.raises(Misconfigured, match="expected at most 16 MiB"):
        revoked_serials.read(path)


def test_more_serials_keep_what_is_there(path: Path) -> None:
    path.write_text("# leavers\n3fa0")

    content = revoked_serials.extended(path, [0x3FA1, 0xA])

    assert content == b"# leavers\n3fa0\n3fa1\na\n"


def test_nothing_is_added_to_an_invalid_file(path: Path) -> None:
    path.write_text("nonsense\n")

    with pytest.raises(Misconfigured, match="revoked:1:"):
        revoked_serials.extended(path, [1])


@given(serials=st.lists(st.integers(min_value=1, max_value=2**159)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_again(path: Path, serials: list[int]) -> None:
    path.unlink(missing_ok=True)

    path.write_bytes(revoked_serials.extended(path, serials))

    assert revoked_serials.read(path) == set(serials)
