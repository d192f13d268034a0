"""Adds and revokes tokens in a file that a server reads and people may edit.

The text is edited to keep comments and layout: an entry is appended or cut out, and the result is parsed again. If
that does not give the expected tokens, because the list has an unusual form, the whole file is written in the
standard layout. The file is replaced atomically, so a reader sees the old or the new content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sentinel.core.access import Role
from sentinel.drivers.identity.tokens_file import (
    ParsedTokens,
    StoredToken,
    parse_tokens,
    read,
)
from sentinel.ports.errors import Misconfigured
from sentinel.runtime import atomic_file
from sentinel.runtime.bearer_tokens import digest_of, new_token
from sentinel.runtime.settings.report import Origin, file_origin

_MODE = 0o600
_NO_FILE = ParsedTokens("", (), ())


def add_token(path: Path, *, name: str, role: Role, adapter: str = "", instance: str = "") -> str:
    """Create a token, store its hash in the file, and return the token, which cannot be read later.

    The file is created if it does not exist.

    Raises `Misconfigured` if the entry or the file is invalid, and `OSError` if the file cannot be written.
    """
    token = new_token()
    entry = StoredToken(name, role, digest_of(token).hex(), adapter, instance)
    _validate(entry)
    with atomic_file.locked_folder(path.resolve().parent):
        before = read(path) if path.exists() else _NO_FILE
        _write(path, _verified(_append(before, entry), (*before.tokens, entry), path))
    return token


def revoke_tokens(path: Path, *, matches: Callable[[StoredToken], bool]) -> Sequence[StoredToken]:
    """Remove the matching tokens from the file and return them. Raises like `add_token`."""
    with atomic_file.locked_folder(path.resolve().parent):
        before = read(path)
        revoked = [token for token in before.tokens if matches(token)]
        if revoked:
            kept = tuple(token for token in before.tokens if not matches(token))
            _write(path, _verified(_cut(before, matches), kept, path))
    return revoked


def _write(path: Path, text: str) -> None:
    atomic_file.write(path, text.encode(), mode=_MODE, keeps_mode=True)


def _validate(entry: StoredToken) -> None:
    """Validate an entry by parsing it as a file, so that there is one set of rules."""
    try:
        parse_tokens(_render([entry]), Origin())
    except Misconfigured as error:
        raise Misconfigured(str(error).replace("tokens[0].", "")) from None


def _verified(text: str, expected: Sequence[StoredToken], path: Path) -> str:
    """Return the edited text if it has the expected tokens, else the standard layout of these tokens."""
    try:
        is_expected = parse_tokens(text, file_origin(path)).tokens == tuple(expected)
    except Misconfigured:
        is_expected = False
    return text if is_expected else _render(expected)


def _render(tokens: Sequence[StoredToken]) -> str:
    return "tokens:\n" + "".join(f"  - {_line(token)}\n" for token in tokens) if tokens else "tokens: []\n"


def _append(before: ParsedTokens, entry: StoredToken) -> str:
    if not before.lines:
        return before.text.rstrip("\n") + ("\n" if before.text.strip() else "") + _render([entry])
    last = before.text.splitlines()[before.lines[-1] - 1]
    indent = last[: len(last) - len(last.lstrip())]
    ending = "" if before.text.endswith("\n") else "\n"
    return f"{before.text}{ending}{indent}- {_line(entry)}\n"


def _cut(before: ParsedTokens, matches: Callable[[StoredToken], bool]) -> str:
    lines = before.text.splitlines(keepends=True)
    ends = (*(start - 1 for start in before.lines[1:]), len(lines))
    for token, start, end in reversed(list(zip(before.tokens, before.lines, ends, strict=True))):
        if matches(token):
            # Comments above the next entry belong to that entry.
            while end > start and not lines[end - 1].partition("#")[0].strip():
                end -= 1
            del lines[start - 1 : end]
    return "".join(lines)


def _line(token: StoredToken) -> str:
    scope = f", adapter: {_quoted(token.adapter)}" if token.adapter else ""
    scope += f", instance: {_quoted(token.instance)}" if token.instance else ""
    return f"{{name: {_quoted(token.name)}, role: {token.role}{scope}, sha256: {_quoted(token.sha256)}}}"


def _quoted(text: str) -> str:
    # Always quoted: YAML may read a name or a hash such as 12e4 as a number, or a name as a boolean.
    return msgspec.json.encode(text).decode()
