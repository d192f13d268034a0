"""Keeps secrets out of everything a person or a log collector can read.

Secrets are masked by value, wherever they turn up: a library's error message quotes the URL it failed on, a
traceback shows a string as Python writes it, a server echoes a header. So each secret is recognised in every
form in which it commonly travels - percent-encoded by anybody's rules, or escaped as Python or JSON do.

What looks like a secret is masked even where nobody told us about it: the password of any URL, the parameters of a
query whose names say what they are, and what follows `Bearer` or `Basic`, unless it is plainly a word.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, unquote, urlsplit

from sentinel.runtime.secrets import MASK

_SHORT = 4
"""Secrets shorter than this are masked only where they stand alone: masking every `a` would leave no log."""

_URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s]*@")

_WORDS = "token|passw(?:or[dt]|d)?|passphrase|pwd|secret|signature|credential"
"""Which names say that they are a secret's. A key is one, too, but not every name that has a key in it."""

_QUERY = re.compile(
    rf"([?&;][^=&;\s?]*(?:key|{_WORDS})[^=&;\s]*=)"
    r"(?!(?:true|false|null|[0-9]{1,4})(?![^&;\s]))[^&;\s\"'<>)\]}]+",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    # It has to end that way: TOKEN_FILE and SECRET_NAME say where a secret is. PWD is where the shell is.
    rf"(?!(?:OLD)?PWD$).*(?:{_WORDS}|(?:api|access|encryption|private|secret|signing)_?key)s?"
    r"(?:_[0-9]+|_BASE64|_VALUE)?",
    re.IGNORECASE,
)
_SHORTEST_VALUE = 6
_PLAIN_VALUES = re.compile(r"[0-9]+|default|disabled|enabled|optional|required", re.IGNORECASE)
"""What is no secret, whatever the name says: masking it everywhere would leave logs that nobody can read."""

_CREDENTIALS = (
    re.compile(r"(\bauthorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)[^\s\"',;}]+", re.IGNORECASE),
    re.compile(r"(\b(?i:bearer|basic)\s+)(?=\S*[0-9=]|\S+[A-Z])[\w+/.~=-]{6,}"),
)
"""In a header of that name whatever it is; elsewhere where it has digits, or capitals within, which the words that
people write after these two have not."""

_UNCHANGED = frozenset(string.ascii_letters + string.digits + "-._")
"""Characters that no encoding replaces."""


class Redactor:
    """Masks the secrets it has been told about; told of more at any time, as when a token rotates."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._forms: tuple[tuple[str, re.Pattern[str]], ...] = ()
        for secret in secrets:
            self.add(secret)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def add(self, secret: str) -> None:
        """Masks `secret` from now on; where it is a URL with a password, the password by itself, too."""
        secret = secret.strip()
        if not secret or secret in self._secrets:
            return
        # What is given may itself be encoded, as a password cut out of a URL is.
        self._secrets |= {secret, unquote(secret), *_passwords(secret)}
        # Longest first, so that a secret which contains another one goes as a whole.
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._forms = tuple((_anchor(known), re.compile(_pattern(known))) for known in longest_first)

    def redact(self, text: str) -> str:
        """The text without any secret."""
        for anchor, pattern in self._forms:
            if anchor in text:
                text = pattern.sub(MASK, text)
        if "://" in text:
            text = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
        if "=" in text:
            text = _QUERY.sub(rf"\1{MASK}", text)
        if " " in text or "\n" in text or "\t" in text:  # of what is logged most is a single word
            for pattern in _CREDENTIALS:
                text = pattern.sub(rf"\1{MASK}", text)
        return text


def secrets_within(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of those variables whose names say that they are secrets."""
    for name, value in environ.items():
        if len(value) < _SHORTEST_VALUE or _PLAIN_VALUES.fullmatch(value):
            continue
        if _VARIABLE.fullmatch(name):
            yield value


def _passwords(secret: str) -> tuple[str, ...]:
    try:
        password = urlsplit(secret).password
    except ValueError:
        password = None
    return (password, unquote(password)) if password else ()


def _anchor(secret: str) -> str:
    """The longest run within it that stays literal in every form; most texts lack it, and that is cheap to see."""
    literal = "".join(character if character in _UNCHANGED else " " for character in secret)
    return max(literal.split(), key=len, default="")


def _pattern(secret: str) -> str:
    forms = "".join(
        re.escape(character) if character in _UNCHANGED else _alternatives(character) for character in secret
    )
    return forms if len(secret) >= _SHORT else rf"(?<!\w){forms}(?!\w)"


def _alternatives(character: str) -> str:
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
