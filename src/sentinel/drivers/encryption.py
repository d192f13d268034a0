"""Encryption of values before they are stored, with AES-256-GCM and keys from a file or an environment variable.

Either has a key of 32 bytes in base64 on each line. The first one encrypts, all of them decrypt. So a key is
rotated by writing a new one above it, and removed once nothing is encrypted with it. Every value is stored with
the id of its key, which is a hash of the key, so that a missing key can be named.

A value is bound to its place: one that someone moved to another row does not decrypt there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import bounded_file

KEY_BYTES: Final = 32

_NONCE_BYTES: Final = 12
_MAX_FILE_BYTES: Final = 64 * 1024
_ID_CONTEXT: Final = b"sentinel: id of an encryption key\0"
_ID_DIGITS: Final = 16
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


class EncryptedValue(msgspec.Struct, frozen=True):
    """A value that can be stored."""

    key_id: str
    data: bytes


class CannotDecrypt(Misconfigured):
    """The text says why, to be read after the name of the value."""


class Encryption:
    """Encrypts with the first of several keys, and decrypts with all of them."""

    def __init__(self, keys: Sequence[bytes], *, source: str) -> None:
        """`source` is the name of the file or variable, for messages."""
        self._source = source
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self.current_key_id = _key_id(keys[0])
        """The id of the key that encrypts."""

    def __repr__(self) -> str:
        return f"Encryption({', '.join(self._ciphers)})"

    @classmethod
    def read(cls, path: Path) -> Encryption:
        """Read the keys in a file. Raises `Misconfigured`, without quoting the file."""
        return cls.parse(bounded_file.read(path, max_bytes=_MAX_FILE_BYTES), source=str(path))

    @classmethod
    def parse(cls, content: bytes, *, source: str) -> Encryption:
        """Read the keys in a text. Raises `Misconfigured`, without quoting it."""
        keys = list(_keys(content, source))
        if not keys:
            raise Misconfigured(f"{source}: expected a key of {KEY_BYTES} bytes in base64, got none")
        return cls(keys, source=source)

    def encrypt(self, value: bytes, *, place: str) -> EncryptedValue:
        """Encrypt a value that is stored at a place, such as a table and the key of a row."""
        nonce = os.urandom(_NONCE_BYTES)
        data = self._ciphers[self.current_key_id].encrypt(nonce, value, place.encode())
        return EncryptedValue(self.current_key_id, nonce + data)

    def decrypt(self, encrypted: EncryptedValue, *, place: str) -> bytes:
        """Return the value that was encrypted for this place. Raises `CannotDecrypt`."""
        cipher = self._ciphers.get(encrypted.key_id)
        if cipher is None:
            has = ", ".join(self._ciphers)
            raise CannotDecrypt(
                f"is encrypted with the key {encrypted.key_id}, which is not in {self._source}; it has {has}"
            )
        nonce, data = encrypted.data[:_NONCE_BYTES], encrypted.data[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, data, place.encode())
        except (InvalidTag, ValueError) as error:  # ValueError: it is too short
            raise CannotDecrypt(f"is damaged: it does not decrypt with the key {encrypted.key_id}") from error


def _key_id(key: bytes) -> str:
    return hashlib.sha256(_ID_CONTEXT + key).hexdigest()[:_ID_DIGITS]


def _keys(content: bytes, source: str) -> Iterator[bytes]:
    for number, line in enumerate(content.splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        expected = f"{source}:{number}: expected {KEY_BYTES} bytes in base64"
        try:
            key = base64.b64decode(text.translate(_URL_SAFE), validate=True)
        except (binascii.Error, ValueError):
            raise Misconfigured(f"{expected}, got no base64") from None
        if len(key) != KEY_BYTES:
            raise Misconfigured(f"{expected}, got {len(key)} bytes")
        yield key
