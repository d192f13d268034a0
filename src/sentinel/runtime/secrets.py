"""Keeps secrets out of logs, dumps, error messages and tracebacks.

`Secret` wraps a value that we know to be secret. Printing it shows a mask.

`Redactor` masks secrets by value wherever they appear: a library quotes the URL that failed, a traceback shows a
string as Python writes it, a server echoes a header. It recognizes each secret percent-encoded and escaped as
Python or JSON do. It also masks text that looks like a secret (`secret_text`).

Secrets are rotated, and a service runs for months. So a secret of a configuration or a client is masked as long as
it is in use, and some minutes longer, because what is logged then may still quote it. Every known secret costs
time in every log line.
"""

from __future__ import annotations

import hmac
import json
import re
import string
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NoReturn
from urllib.parse import quote, unquote, urlsplit

from sentinel.runtime.secret_text import MASK, is_secret_name, mask_secret_text

__all__ = ["KEPT", "MASK", "Redactor", "Secret", "secrets_in_environment"]

KEPT: Final = timedelta(minutes=10)
"""How long a secret is masked after it was last in use. Requests and log lines about it have ended by then."""

_RECENT = 8
"""How many secrets of a client count as in use: the current ones, and those of requests still in flight."""

_SHORT = 4
"""Shorter secrets are masked only as whole words. Masking every `a` would make logs unreadable."""

_MIN_VALUE_LENGTH = 6
_PLAIN_VALUES = re.compile(r"[0-9]+|default|disabled|enabled|optional|required", re.IGNORECASE)
"""Values that are never secrets, whatever the variable's name. Masking them would make logs unreadable."""

_UNCHANGED = frozenset(string.ascii_letters + string.digits + "-._")
"""Characters that no encoding replaces."""


class Secret:
    """A string that Python shows as a mask. `reveal()` returns the text."""

    __slots__ = ("_shown", "_text")

    def __init__(self, text: str, *, shown: str = MASK) -> None:
        self._text = text
        self._shown = shown

    def reveal(self) -> str:
        """Return the text, for the driver that sends it."""
        return self._text

    def __str__(self) -> str:
        return self._shown

    def __format__(self, spec: str) -> str:
        return format(self._shown, spec)

    def __repr__(self) -> str:
        return f"Secret({self._shown!r})"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(
            self._text.encode("utf-8", "surrogatepass"), other._text.encode("utf-8", "surrogatepass")
        )

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        # A pickle would contain the text.
        raise TypeError("a secret cannot be pickled")


class Redactor:
    """Masks known secrets in text. More can be added at any time, such as a rotated token.

    Of a secret that is a URL, the password alone is masked, too.
    """

    def __init__(self, secrets: Iterable[str] = (), *, now: Callable[[], float] = time.monotonic) -> None:
        """`now` returns seconds, which never go back."""
        self._now = now
        self._permanent: set[str] = set()
        self._in_use: dict[Hashable, frozenset[str]] = {}
        """By user."""
        self._released: dict[str, float] = {}
        """Secrets that a user no longer has, and since when."""
        self._patterns: dict[str, tuple[str, re.Pattern[str]]] = {}
        """What is masked: each known secret and its parts, longest first."""
        for secret in secrets:
            self.add(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._patterns)} secrets)"

    def add(self, secret: str) -> None:
        """Mask `secret` from now on, for as long as the process runs."""
        secret = secret.strip()
        if secret and secret not in self._permanent:
            self._permanent.add(secret)
            self._compile()

    def set_in_use(self, user: Hashable, secrets: Iterable[str]) -> None:
        """Mask these secrets of a user, such as a configuration, instead of those of its last call.

        The others stay masked for `KEPT`.
        """
        before = self._in_use.pop(user, frozenset())
        current = frozenset(filter(None, (secret.strip() for secret in secrets)))
        if current:
            self._in_use[user] = current
        now = self._now()
        expired = [secret for secret, since in self._released.items() if now - since >= KEPT.total_seconds()]
        for secret in expired:
            del self._released[secret]
        self._released.update(dict.fromkeys(before - current, now))
        if expired or current != before:
            self._compile()

    def rotating(self) -> Callable[[str], None]:
        """Return a function that masks the secrets of one client, which replaces them from time to time.

        Call it with each secret before its first use. The last few count as in use.
        """
        user = object()
        recent: dict[str, None] = {}

        def add(secret: str) -> None:
            recent.pop(secret, None)
            recent[secret] = None
            while len(recent) > _RECENT:
                del recent[next(iter(recent))]
            self.set_in_use(user, recent)

        return add

    def _compile(self) -> None:
        known: set[str] = set()
        for secret in {*self._permanent, *self._released}.union(*self._in_use.values()):
            # The text itself may be encoded, such as a password cut out of a URL.
            known |= {secret, unquote(secret), *_passwords(secret)}
        compiled = self._patterns
        # A new mapping, because other threads read the old one. Longest first, so that a secret that contains
        # another one is masked as a whole.
        self._patterns = {
            each: compiled.get(each) or (_literal_part(each), re.compile(_pattern(each)))
            for each in sorted(known, key=len, reverse=True)
        }

    def redact(self, text: str) -> str:
        """Return the text with all secrets masked."""
        for literal, pattern in self._patterns.values():
            if literal in text:
                text = pattern.sub(MASK, text)
        return mask_secret_text(text)

    def redact_each(self, texts: Sequence[str]) -> Sequence[str]:
        """Return each text as `redact` does. One pass over all of them shows that most contain no secret."""
        # A separator without spaces, which would make it look for credentials. A match across it costs only time.
        together = "\0".join(texts)
        if self.redact(together) == together:
            return texts
        return [self.redact(text) for text in texts]


def secrets_in_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names mark them as secrets."""
    for name, value in environ.items():
        if len(value) < _MIN_VALUE_LENGTH or _PLAIN_VALUES.fullmatch(value):
            continue
        if is_secret_name(name):
            yield value


def _passwords(secret: str) -> tuple[str, ...]:
    try:
        password = urlsplit(secret).password
    except ValueError:
        password = None
    return (password, unquote(password)) if password else ()


def _literal_part(secret: str) -> str:
    """Return the longest run that no encoding changes. Most texts lack it, and that is cheap to check."""
    literal = "".join(character if character in _UNCHANGED else " " for character in secret)
    return max(literal.split(), key=len, default="")


def _pattern(secret: str) -> str:
    forms = "".join(
        re.escape(character) if character in _UNCHANGED else _encodings(character) for character in secret
    )
    return forms if len(secret) >= _SHORT else rf"(?<!\w){forms}(?!\w)"


def _encodings(character: str) -> str:
    encoded = quote(character, safe="", errors="replace")
    forms = {
        character,
        encoded,
        encoded.lower(),
        repr(character)[1:-1],
        json.dumps(character)[1:-1],
        f"\\{character}",
    }
    if character == " ":
        forms.add("+")
    return f"(?:{'|'.join(re.escape(form) for form in sorted(forms, key=len, reverse=True))})"
