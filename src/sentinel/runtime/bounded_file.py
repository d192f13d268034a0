"""Files that an operator names: keys, certificates, lists. None is read without a limit."""

from __future__ import annotations

from pathlib import Path

from sentinel.ports.errors import Misconfigured


def read(path: Path, *, max_bytes: int) -> bytes:
    """Return the content of a file. Raises `Misconfigured` if it cannot be read, or is larger than that."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {(error.strerror or '').lower()}") from error
    if len(content) > max_bytes:
        limit = f"{max_bytes >> 20} MiB" if max_bytes >= 1 << 20 else f"{max_bytes >> 10} KiB"
        raise Misconfigured(f"{path}: expected at most {limit}, got more")
    return content
