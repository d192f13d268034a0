"""Encryption of stored values: files of keys, rotation, and what does not decrypt."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.drivers.encryption import CannotDecrypt, EncryptedValue, Encryption
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secret_text import mask_secret_text

OLD, NEW = bytes(range(32)), bytes(range(224, 256))
PLACE = "secrets/api-key"


def encryption(*keys: bytes) -> Encryption:
    return Encryption(keys, source="keys.txt")


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def key_file(folder: Path, content: str | bytes) -> Path:
    path = folder / "secrets.key"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- encrypting --------------------------------------------------------------------------------------------------


def test_keys_are_read_from_a_text() -> None:
    stored = encryption(OLD).encrypt(b"hunter2", place=PLACE)

    rotated = Encryption.parse(f"{encoded(NEW)}\n{encoded(OLD)}".encode(), source="SENTINEL_SECRETS_KEY")

    assert rotated.decrypt(stored, place=PLACE) == b"hunter2"
    assert rotated.current_key_id == encryption(NEW).current_key_id
    with pytest.raises(Misconfigured, match=r"^SENTINEL_SECRETS_KEY:1: expected 32 bytes in base64, got 3 bytes$"):
        Encryption.parse(b"YWJj", source="SENTINEL_SECRETS_KEY")


@given(value=st.binary(max_size=200), place=st.text(max_size=40))
def test_what_was_encrypted_decrypts(value: bytes, place: str) -> None:
    cipher = encryption(OLD)

    encrypted = cipher.encrypt(value, place=place)

    assert cipher.decrypt(encrypted, place=place) == value


def test_the_value_is_not_in_what_is_stored() -> None:
    encrypted = encryption(OLD).encrypt(b"hunter2", place=PLACE)

    assert b"hunter2" not in encrypted.data
    assert len(encrypted.data) == len(b"hunter2") + 12 + 16


def test_the_same_value_is_never_stored_the_same() -> None:
    cipher = encryption(OLD)

    stored = {cipher.encrypt(b"hunter2", place=PLACE).data for _ in range(50)}

    assert len(stored) == 50


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = encryption(OLD).encrypt(b"hunter2", place=PLACE)
    rotated = encryption(NEW, OLD)

    after = rotated.encrypt(b"hunter2", place=PLACE)

    assert rotated.decrypt(before, place=PLACE) == b"hunter2"
    assert encryption(NEW).decrypt(after, place=PLACE) == b"hunter2"
    assert after.key_id == rotated.current_key_id != before.key_id


def test_a_value_does_not_decrypt_at_another_place() -> None:
    encrypted = encryption(OLD).encrypt(b"hunter2", place=PLACE)

    with pytest.raises(CannotDecrypt, match="is damaged"):
        encryption(OLD).decrypt(encrypted, place="secrets/other")


def test_a_missing_key_is_named_and_those_that_exist() -> None:
    encrypted = encryption(OLD).encrypt(b"hunter2", place=PLACE)

    with pytest.raises(CannotDecrypt) as caught:
        encryption(NEW).decrypt(encrypted, place=PLACE)

    needed, has = encryption(OLD).current_key_id, encryption(NEW).current_key_id
    assert str(caught.value) == f"is encrypted with the key {needed}, which is not in keys.txt; it has {has}"
    assert mask_secret_text(str(caught.value)) == str(caught.value)


def test_a_changed_byte_is_found_wherever_it_is() -> None:
    cipher = encryption(OLD)
    encrypted = cipher.encrypt(b"hunter2", place=PLACE)

    for at in range(len(encrypted.data)):
        data = bytearray(encrypted.data)
        data[at] ^= 1
        with pytest.raises(CannotDecrypt, match="is damaged"):
            cipher.decrypt(EncryptedValue(encrypted.key_id, bytes(data)), place=PLACE)


@pytest.mark.parametrize("length", [0, 5, 12, 27])
def test_a_value_that_is_cut_off_is_damaged(length: int) -> None:
    cipher = encryption(OLD)
    encrypted = cipher.encrypt(b"", place=PLACE)

    with pytest.raises(CannotDecrypt, match="is damaged"):
        cipher.decrypt(EncryptedValue(encrypted.key_id, encrypted.data[:length]), place=PLACE)


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        encoded(NEW),
        f"{encoded(NEW)}\n",
        f"\n  {encoded(NEW)}\r\n\n",
        f"# since March\n{encoded(NEW)}\n# before\n{encoded(OLD)}\n",
        base64.urlsafe_b64encode(NEW),
    ],
    ids=["bare", "line", "spaces", "several", "URL-safe"],
)
def test_the_first_key_of_a_file_encrypts(tmp_path: Path, content: str | bytes) -> None:
    cipher = Encryption.read(key_file(tmp_path, content))

    assert cipher.current_key_id == encryption(NEW).current_key_id


def test_all_keys_of_a_file_decrypt(tmp_path: Path) -> None:
    cipher = Encryption.read(key_file(tmp_path, f"{encoded(NEW)}\n{encoded(OLD)}\n"))

    encrypted = encryption(OLD).encrypt(b"hunter2", place=PLACE)

    assert cipher.decrypt(encrypted, place=PLACE) == b"hunter2"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "secrets.key: expected a key of 32 bytes in base64, got none"),
        ("# later\n\n", "secrets.key: expected a key of 32 bytes in base64, got none"),
        (f"{encoded(OLD)}\nhunter2!\n", "secrets.key:2: expected 32 bytes in base64, got no base64"),
        (encoded(OLD[:31]), "secrets.key:1: expected 32 bytes in base64, got 31 bytes"),
        (encoded(OLD + b"x"), "secrets.key:1: expected 32 bytes in base64, got 33 bytes"),
        (OLD, "secrets.key:"),
        (b"\xff" * 43, "secrets.key:1: expected 32 bytes in base64, got no base64"),
        (f"{encoded(OLD)} {encoded(NEW)}", "secrets.key:1: expected 32 bytes in base64, got no base64"),
        (b"x" * 70_000, "secrets.key: expected at most 64 KiB, got more"),
    ],
    ids=["empty", "comments", "no base64", "short", "long", "raw bytes", "no ASCII", "one line", "large"],
)
def test_the_error_of_a_bad_file_names_the_line_and_quotes_nothing(
    tmp_path: Path, content: str | bytes, problem: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        Encryption.read(key_file(tmp_path, content))

    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert encoded(OLD)[:8] not in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="absent: cannot be read: no such file or directory"):
        Encryption.read(tmp_path / "absent")


def test_keys_are_not_shown() -> None:
    shown = repr(encryption(NEW, OLD))

    assert shown == f"Encryption({encryption(NEW).current_key_id}, {encryption(OLD).current_key_id})"
    assert encoded(NEW) not in shown
    assert NEW.hex() not in shown
