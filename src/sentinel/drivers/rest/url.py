"""Base URLs, path segments and queries."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from yarl import URL

from sentinel.runtime.settings.report import quoted


class InvalidUrl(ValueError):
    """Not an http(s) URL with a host and without query and fragment. The text omits the URL, which may contain a
    password."""


class CredentialsInUrl(InvalidUrl):
    """The URL contains a user or a password; tokens are configured separately."""


class InvalidSegment(ValueError):
    """The text cannot be a path segment."""


def parse_base_url(text: str) -> URL:
    """Parse the common prefix of a server's URLs. Raises `InvalidUrl`."""
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
    """Encode the text as one path segment. Raises `InvalidSegment`."""
    if text in ("", ".", "..") or "/" in text or not text.isprintable():
        raise InvalidSegment(f"expected one segment of a URL, such as the id of a resource, got {quoted(text)}")
    return quote(text, safe="")


def query(parameters: Mapping[str, str]) -> str:
    """The query with those parameters that have a value, including `?`; empty if there are none."""
    # Keep `=` and `,` readable: servers split a parameter at its first `=` only.
    given = "&".join(f"{name}={quote(value, safe='=,')}" for name, value in parameters.items() if value)
    return f"?{given}" if given else ""
