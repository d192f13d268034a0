"""Parts of URLs: what every URL of a server begins with, segments of paths, and queries."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from yarl import URL

from sentinel.runtime.settings.report import quoted


class InvalidUrl(ValueError):
    """Not `http` or `https` with a host and nothing behind the path. The URL is not shown: it may contain a
    password."""


class CredentialsInUrl(InvalidUrl):
    """The URL has a user or a password, where a token has to be used."""


class InvalidSegment(ValueError):
    """A text that cannot be one segment of a path."""


def base_url(text: str) -> URL:
    """What every URL of a server begins with; raises `InvalidUrl`."""
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
        raise InvalidUrl("expected http(s)://host[:port][/path]")
    if url.user or url.password:
        raise CredentialsInUrl("expected no credentials in a URL")
    return url


def segment(text: str) -> str:
    """The text as one segment of a path; raises `InvalidSegment` where it cannot be one."""
    if text in ("", ".", "..") or "/" in text or not text.isprintable():
        raise InvalidSegment(f"expected one segment of a URL, such as the id of a resource, got {quoted(text)}")
    return quote(text, safe="")


def query(parameters: Mapping[str, str]) -> str:
    """A query with those parameters that have a value, `?` included; empty where none has."""
    # `=` and `,` stay readable: every server splits a parameter at its first `=` only.
    given = "&".join(f"{name}={quote(value, safe='=,')}" for name, value in parameters.items() if value)
    return f"?{given}" if given else ""
