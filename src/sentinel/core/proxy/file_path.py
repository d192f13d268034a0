"""From the path of a request to the path of a file below a directory."""

from __future__ import annotations

from urllib.parse import unquote


def segments(path: str) -> tuple[str, ...] | None:
    """Return the segments of the file's path, or None if no file may be meant.

    Nothing leaves the directory: `..` is refused, however it is written. Backslashes and NUL are refused, too.
    """
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return None
    if "\0" in decoded or "\\" in decoded:
        return None
    found = tuple(segment for segment in decoded.split("/") if segment not in ("", "."))
    return None if ".." in found else found
