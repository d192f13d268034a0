"""Settings of the connection to the HyperFleet API that pulses and adapters share."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.schema import EnvironmentSecret


def endpoint(*, instead_of_password: str) -> FieldType:
    """The address of an API. `instead_of_password` tells users where to put credentials."""

    def parse(text: str) -> str:
        if "@" in text:
            raise InvalidValue(f"without user and password: use {instead_of_password}", hides_text=True)
        return _parse_endpoint(text)

    return FieldType("a URL such as http://hyperfleet-api:8000", parse)


def _parse_endpoint(text: str) -> str:
    if not text.isprintable() or set(text) & set(' \\?#"<>^`{|}'):
        raise InvalidValue("without query, fragment, spaces")
    try:
        url = urlsplit(text)
        is_complete = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        raise InvalidValue
    return text.rstrip("/")


def _parse_token(text: str) -> Secret:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidValue("it must not contain spaces or control characters")
    return Secret(text)


TOKEN = FieldType("a bearer token", _parse_token, is_secret=True)


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to the HyperFleet API."""

    endpoint: Annotated[
        str, endpoint(instead_of_password="hyperfleet_api.token_file or HYPERFLEET_API_TOKEN")  # noqa: S106
    ]
    """The address of the API: `http` or `https`, a host, and optionally a port and a path prefix for
    `/api/hyperfleet/v1`. No query, fragment, user or password."""

    timeout: timedelta = timedelta(seconds=10)
    """The timeout of one request, including its body."""

    token_file: Path | None = None
    """A file with the bearer token. It is read again when it changes. Relative to the working directory. It need
    not exist where the settings are checked."""

    ca_file: Path | None = None
    """A PEM file of certificate authorities to trust for `https` instead of the system's. Relative to the working
    directory. It need not exist where the settings are checked."""

    gzip: bool = False
    """Whether to request compressed responses: less traffic, more CPU on both sides."""

    token: Annotated[
        Secret | None,
        EnvironmentSecret(
            "HYPERFLEET_API_TOKEN",
            "use hyperfleet_api.token_file, or the environment variable HYPERFLEET_API_TOKEN",
            TOKEN,
        ),
    ] = None
    """The bearer token. Only from the environment variable `HYPERFLEET_API_TOKEN`, which overrides `token_file`.
    Rejected in files and flags."""
