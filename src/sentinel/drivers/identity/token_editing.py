"""Adding tokens to a file and taking them out again, while a server reads it and people keep comments in it.

The text is edited, not written anew: one entry is appended, or one is cut out, and the result is read back. Only
where that does not give exactly the tokens meant - the list was written in some unusual form - is the whole file
laid out afresh. A reader sees the old file or the new one, and never a part.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from sentinel.core.access import Role
from sentinel.drivers.identity.tokens_file import (
    ParsedTokens,
    StoredToken,
    digest_of,
    new_token,
    parse_tokens,
    read,
)
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.settings.report import Origin, file_origin

_OURS = 0o600
_EMPTY = ParsedTokens("", (), ())


def add_token(path: Path, *, name: str, role: Role, adapter: str = "", instance: str = "") -> str:
    """Makes a token, stores its hash in the file (created if missing), and returns it: it cannot be read later.

    Raises `Misconfigured` if the entry or the file is invalid, and `OSError` if the file cannot be written.
    """
    token = new_token()
    entry = StoredToken(name, role, digest_of(token), adapter, instance)
    _check(entry)
    with _locked(path):
        before = read(path) if path.exists() else _EMPTY
        _write(path, _edited(path, (*before.tokens, entry), lambda: _appended(before, entry)))
    return token


def revoke_tokens(path: Path, *, is_meant: Callable[[StoredToken], bool]) -> Sequence[StoredToken]:
    """Takes the tokens that are meant out of the file, and returns them. Raises as `add_token` does."""
    with _locked(path):
        before = read(path)
        gone = [token for token in before.tokens if is_meant(token)]
        if gone:
            kept = tuple(token for token in before.tokens if not is_meant(token))
            _write(path, _edited(path, kept, lambda: _cut(before, is_meant)))
    return gone


def _check(entry: StoredToken) -> None:
    """Reads the entry as if it stood in a file, so that there is one opinion on what one may be."""
    try:
        parse_tokens(_laid_out([entry]), Origin())
    except Misconfigured as error:
        raise Misconfigured(str(error).replace("tokens[0].", "")) from None


def _edited(path: Path, meant: Sequence[StoredToken], edit: Callable[[], str]) -> str:
    text = edit()
    try:
        is_meant = parse_tokens(text, file_origin(path)).tokens == tuple(meant)
    except Misconfigured:
        is_meant = False
    return text if is_meant else _laid_out(meant)


def _laid_out(tokens: Sequence[StoredToken]) -> str:
    return "tokens:\n" + "".join(f"  - {_line(token)}\n" for token in tokens) if tokens else "tokens: []\n"


def _appended(before: ParsedTokens, entry: StoredToken) -> str:
    if not before.lines:
        return before.text.rstrip("\n") + ("\n" if before.text.strip() else "") + _laid_out([entry])
    last = before.text.splitlines()[before.lines[-1] - 1]
    indent = last[: len(last) - len(last.lstrip())]
    ending = "" if before.text.endswith("\n") else "\n"
    return f"{before.text}{ending}{indent}- {_line(entry)}\n"


def _cut(before: ParsedTokens, is_meant: Callable[[StoredToken], bool]) -> str:
    lines = before.text.splitlines(keepends=True)
    ends = (*(start - 1 for start in before.lines[1:]), len(lines))
    for token, start, end in reversed(list(zip(before.tokens, before.lines, ends, strict=True))):
        if is_meant(token):
            # Comments above the next entry belong to that one.
            while end > start and not lines[end - 1].partition("#")[0].strip():
                end -= 1
            del lines[start - 1 : end]
    return "".join(lines)


def _line(token: StoredToken) -> str:
    about = f", adapter: {_quoted(token.adapter)}" if token.adapter else ""
    about += f", instance: {_quoted(token.instance)}" if token.instance else ""
    return f"{{name: {_quoted(token.name)}, role: {token.role}{about}, sha256: {_quoted(token.sha256)}}}"


def _quoted(text: str) -> str:
    # Always: a name may read like a number or a truth, and so may a hash of digits around a single e.
    return msgspec.json.encode(text).decode()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among those who edit files of this folder; the lock goes with the process and leaves no file."""
    folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path: Path, text: str) -> None:
    """Puts the text in the file's place at once, and makes sure that it is there after a power cut."""
    target = path.resolve()  # a link stays one
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OURS)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as writing:
            _keep_owner(file, target)
            writing.write(text)
            writing.flush()
            os.fsync(file)
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_owner(file: int, target: Path) -> None:
    """An administrator who edits a service's file must not take it away from the service."""
    with suppress(FileNotFoundError, PermissionError):
        before = target.stat()
        os.fchown(file, before.st_uid, before.st_gid)
        os.fchmod(file, before.st_mode & 0o660)
