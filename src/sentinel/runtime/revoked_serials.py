"""The file of revoked certificates: a serial number in hexadecimal on each line.

Empty lines and comments that start with `#` are allowed, and so are the forms in which openssl prints serials: in
capitals, and with a colon between bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sentinel.ports.errors import Misconfigured
from sentinel.runtime import bounded_file

_MAX_BYTES: Final = 16 * 1024 * 1024
_SERIAL: Final = re.compile(rb"[0-9A-Fa-f]{1,64}")


def hexadecimal(serial: int) -> str:
    """Return a serial as we write it."""
    return format(serial, "x")


def read(path: Path) -> frozenset[int]:
    """Return the revoked serials. Raises `Misconfigured` if the file cannot be read, or a line is not a serial."""
    return _parse(bounded_file.read(path, max_bytes=_MAX_BYTES), path)


def extended(path: Path, serials: Iterable[int]) -> bytes:
    """Return the content of the file with more serials; a file that does not exist is empty. Raises as `read`."""
    before = bounded_file.read(path, max_bytes=_MAX_BYTES) if path.exists() else b""
    _parse(before, path)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return before + b"".join(f"{hexadecimal(serial)}\n".encode() for serial in serials)


def _parse(content: bytes, path: Path) -> frozenset[int]:
    serials: set[int] = set()
    for number, line in enumerate(content.split(b"\n"), 1):
        text = line.partition(b"#")[0].strip()
        if not text:
            continue
        digits = text.replace(b":", b"")
        if _SERIAL.fullmatch(digits) is None:
            # Not quoted: it may be a file of keys, given by mistake.
            raise Misconfigured(f"{path}:{number}: expected the serial of a certificate in hexadecimal")
        serials.add(int(digits, 16))
    return frozenset(serials)
