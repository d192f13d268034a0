"""Splits the output of a child process into lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

_MAX_LINE = 8 * 1024
_MARGIN = 4 * 1024
"""Bytes read beyond the longest line: redacted with it, then dropped. Without them, a secret cut in half would not
be recognized. Secrets longer than this may still leak in part."""


class OutputLines:
    """Splits a stream of bytes into lines and passes each to `emit`, redacted and shortened."""

    def __init__(self, emit: Callable[[str], None], *, redact: Callable[[str], str]) -> None:
        self._emit = emit
        self._redact = redact
        self._line = bytearray()
        self._is_cut = False

    def feed(self, data: bytes) -> None:
        """Process data. The rest of an overlong line is dropped."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._append(piece)
            self.end()
        self._append(rest)

    def end(self) -> None:
        """End the current line. Blank lines are skipped."""
        text = self._redact(self._line.decode("utf-8", "replace").rstrip())
        if self._is_cut:
            text = f"{text[:-_MARGIN]}…"
        elif len(text) > _MAX_LINE:
            text = f"{text[:_MAX_LINE]}…"
        self._line.clear()
        self._is_cut = False
        if text:
            self._emit(text)

    def _append(self, piece: bytes) -> None:
        room = _MAX_LINE + _MARGIN - len(self._line)
        self._line += piece[:room]
        self._is_cut = self._is_cut or len(piece) > room
