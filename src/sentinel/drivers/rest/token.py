"""What a client sends in `Authorization`: a token, which may be rotated, or a name and a password."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from sentinel.ports.errors import Misconfigured


class BearerToken:
    """A token that is read for each request, so that a rotated file needs no restart."""

    scheme = "Bearer"

    def __init__(
        self,
        text: str = "",
        *,
        file: Path | None = None,
        name: str = "token",
        on_token: Callable[[str], None] = lambda token: None,
    ) -> None:
        """`text` takes precedence over `file`. Without both, requests carry no token. Errors show `name`.

        `on_token` is called with every new token before its first use, so that logs can redact it.
        """
        self._text = text
        self._file = file
        self._name = name
        self._on_token = on_token
        self._last = ""

    def use(self, text: str) -> None:
        """Send another token from the next request on."""
        self._text = text

    def read(self) -> str:
        """Return the current token, or "" if there is none. Raises `Misconfigured` if it is unreadable or
        invalid."""
        token, where = self._text, self._name
        if not token and self._file is not None:
            where = f"token_file {self._file}"
            try:
                token = self._file.read_bytes().strip().decode("ascii", "replace")
            except OSError as error:
                raise Misconfigured(f"{where}: {error.strerror}") from error
            if not token:
                raise Misconfigured(f"{where}: expected a token, got nothing")
        if not all("!" <= character <= "~" for character in token):
            raise Misconfigured(f"{where}: expected only visible ASCII characters")
        if token != self._last:
            self._on_token(token)
            self._last = token
        return token


class BasicCredentials(BearerToken):
    """A name and a password, sent instead of a token."""

    scheme = "Basic"

    def __init__(self, name: str, password: str, *, on_token: Callable[[str], None] = lambda token: None) -> None:
        super().__init__(base64.b64encode(f"{name}:{password}".encode()).decode(), on_token=on_token)
