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
from sentinel.runtime.settings.report import quoted

_MAX_BYTES: Final = 16 * 1024 * 1024
_SERIAL: Final = re.compile(rb"[0-9A-Fa-f]{1,64}")


def hexadecimal(serial: int) -> str:
    """Return a serial as we write it."""
    return format(serial, "x")


def read(path: Path) -> frozenset[int]:
    """Return the revoked serials. Raises `Misconfigured` if the file cannot be read, or a line is no serial."""
    return _parse(_content(path), path)


def extended(path: Path, serials: Iterable[int]) -> bytes:
    """Return the content of the file with more serials; a file that does not exist is empty. Raises as `read`."""
    before = _content(path) if path.exists() else b""
    _parse(before, path)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return before + b"".join(f"{hexadecimal(serial)}\n".encode() for serial in serials)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {(error.strerror or '').lower()}") from error
    if len(content) > _MAX_BYTES:
        raise Misconfigured(f"{path}: expected at most {_MAX_BYTES >> 20} MiB, got more")
    return content


def _parse(content: bytes, path: Path) -> frozenset[int]:
    serials: set[int] = set()
    for number, line in enumerate(content.split(b"\n"), 1):
        text = line.partition(b"#")[0].strip()
        if not text:
            continue
        digits = text.replace(b":", b"")
        if _SERIAL.fullmatch(digits) is None:
            shown = quoted(text.decode(errors="replace"))
            raise Misconfigured(
                f"{path}:{number}: expected the serial of a certificate in hexadecimal, got {shown}"
            )
        serials.add(int(digits, 16))
    return frozenset(serials)
