"""How the HyperFleet API is reached: shared by the pulse and by adapters."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from sentinel.core.labels import SelectorParam
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.schema import EnvironmentSecret


def _endpoint(given: str) -> str:
    if "@" in given:
        raise InvalidValue(
            "without user and password: use hyperfleet_api.token_file or HYPERFLEET_API_TOKEN", hides_text=True
        )
    if not given.isprintable() or set(given) & set(' \\?#"<>^`{|}'):
        raise InvalidValue("without query, fragment, spaces")
    try:
        url = urlsplit(given)
        is_complete = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        raise InvalidValue
    return given.rstrip("/")


def _token(given: str) -> Secret:
    if not given.isascii() or not given.isprintable() or " " in given:
        raise InvalidValue("it must not contain spaces or control characters")
    return Secret(given)


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the HyperFleet API is reached."""

    endpoint: Annotated[str, FieldType("a URL such as http://hyperfleet-api:8000", _endpoint)]
    """The address of the API: `http` or `https`, a host, and optionally a port and a path that goes before
    `/api/hyperfleet/v1`. No query, no fragment, no user and password."""

    timeout: timedelta = timedelta(seconds=10)
    """How long one request may take, its body included."""

    page_size: Annotated[int, field_types.integer(1, 1000)] = 100
    """How many resources are asked for in one request, from 1 to 1000. The public API of today refuses more
    than 100."""

    selector_param: SelectorParam = SelectorParam.LABELS
    """How the API takes `resource_selector`: `labels` sends `labels=region=us-east`, `search` sends
    `search=labels.region='us-east'`, which is what the public API understands today."""

    token_file: Path | None = None
    """A file with the bearer token, read again when it changes. Relative to the working directory. It need not
    exist where the settings are checked, only where they are used."""

    ca_file: Path | None = None
    """A file with the certificates (PEM) of the authorities that are trusted for `https`, instead of the
    system's. Relative to the working directory; it need not exist where the settings are checked."""

    gzip: bool = False
    """Whether to ask for compressed answers: less traffic, more work on both sides."""

    token: Annotated[
        Secret | None,
        EnvironmentSecret(
            "HYPERFLEET_API_TOKEN",
            "use hyperfleet_api.token_file, or the environment variable HYPERFLEET_API_TOKEN",
            FieldType("a bearer token", _token, is_secret=True),
        ),
    ] = None
    """The bearer token itself. Only from the environment variable `HYPERFLEET_API_TOKEN`, which wins over
    `token_file`; refused in files and flags."""
