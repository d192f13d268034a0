"""What a child process prints, line by line, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

_LONGEST_LINE = 8 * 1024
_MARGIN = 4 * 1024
"""Read beyond the longest line, redacted with it and then dropped: a secret that a cut goes through would not be
recognised. A secret longer than this may still be."""


class OutputLines:
    """Cuts a stream of bytes into lines and hands each to `emit`, without secrets and not too long."""

    def __init__(self, emit: Callable[[str], None], *, redact: Callable[[str], str]) -> None:
        self._emit = emit
        self._redact = redact
        self._held = bytearray()
        self._is_cut = False

    def feed(self, data: bytes) -> None:
        """Takes what was read. The rest of a line that is too long is dropped."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._hold(piece)
            self.end()
        self._hold(rest)

    def end(self) -> None:
        """Ends the current line; blank ones are left out."""
        text = self._redact(self._held.decode("utf-8", "replace").rstrip())
        if self._is_cut:
            text = f"{text[:-_MARGIN]}…"
        elif len(text) > _LONGEST_LINE:
            text = f"{text[:_LONGEST_LINE]}…"
        self._held.clear()
        self._is_cut = False
        if text:
            self._emit(text)

    def _hold(self, piece: bytes) -> None:
        room = _LONGEST_LINE + _MARGIN - len(self._held)
        self._held += piece[:room]
        self._is_cut = self._is_cut or len(piece) > room
