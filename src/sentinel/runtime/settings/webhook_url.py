"""URLs of webhooks, which may contain a secret, such as the token of a chat."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.field_types import FieldType, InvalidValue


def _parse(text: str) -> Secret:
    try:
        url = urlsplit(text)
        is_complete = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or not text.isprintable() or " " in text:
        raise InvalidValue(hides_text=True)
    return Secret(text)


WEBHOOK_URL: Final = FieldType("an http or https URL", _parse, is_secret=True)
