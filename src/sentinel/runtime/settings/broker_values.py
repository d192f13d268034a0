"""Types of the single values of broker settings. A SentinelConfig has the same values in other fields."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

import msgspec

from sentinel.runtime.secrets import MASK, Secret
from sentinel.runtime.settings import field_types
from sentinel.runtime.settings.field_types import FieldType, InvalidValue


def _parse_url(text: str) -> Secret:
    hint = "percent-encode special characters in user, password and vhost"
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        raise InvalidValue(hint) from None  # not chained: the library's message may repeat the password
    userinfo, at, address = url.netloc.rpartition("@")
    if url.scheme not in ("amqp", "amqps") or not host or port == 0 or not text.isprintable() or " " in text:
        raise InvalidValue(hint)
    if url.fragment or text.count("@") != len(at):
        # An unescaped / ? # or @ ends the host early, and the rest of the password would be shown as the vhost.
        raise InvalidValue(hint)
    return Secret(text, shown=f"{url.scheme}://{MASK + at if userinfo else ''}{address}{url.path}")


def _parse_host(text: str) -> str:
    if "@" in text or "://" in text:
        raise InvalidValue("put a URL into BROKER_URL", hides_text=True)
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        if re.fullmatch(r"[A-Za-z0-9._-]+", text) is None:
            raise InvalidValue("put a port into BROKER_PORT" if ":" in text else "") from None
    return text


def short_string(expected: str) -> FieldType:
    """An AMQP short string."""

    def parse(text: str) -> str:
        if len(text.encode()) > 255:
            raise InvalidValue("at most 255 bytes")
        return text

    return FieldType(expected, parse)


class _ServiceAccountKey(msgspec.Struct):
    """The members of Google's key file that are needed to sign in with it."""

    type: Literal["service_account"]
    client_email: str
    token_uri: str
    private_key: str


def _parse_service_account_key(text: str) -> Secret:
    try:
        msgspec.json.decode(text, type=_ServiceAccountKey)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InvalidValue("type, client_email, token_uri and private_key are needed") from None
    return Secret(text)


URL = FieldType("a URL such as amqp://user:password@host:5672/vhost", _parse_url, is_secret=True)
HOST = FieldType("a host name or address", _parse_host)
EXCHANGE = short_string("the name of an exchange")
USERNAME = short_string("a user name")
PROJECT_ID = field_types.text("the id of a project, such as hyperfleet-prod", r"[A-Za-z0-9][A-Za-z0-9.:_-]*")
TOPIC = field_types.text(
    "the id of a topic, such as hyperfleet-events", r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{0,254}"
)
SERVICE_ACCOUNT_KEY = FieldType(
    "the key of a Google service account, as JSON", _parse_service_account_key, is_secret=True
)


def url_passwords(url: Secret) -> tuple[Secret, ...]:
    """Return the password of a valid URL, encoded and decoded. An error message may contain either."""
    password = urlsplit(url.reveal()).password
    return () if not password else (Secret(password), Secret(unquote(password)))


def with_credentials(url: Secret, *, username: str | None, password: str | None) -> Secret:
    """Return a valid URL with another user name or password. What neither has is `guest`, RabbitMQ's default."""
    if username is None and password is None:
        return url
    parts = urlsplit(url.reveal())
    user = (parts.username or "guest") if username is None else quote(username, safe="")
    secret = (parts.password or "guest") if password is None else quote(password, safe="")
    address = parts.netloc.rpartition("@")[2]
    return _parse_url(parts._replace(netloc=f"{user}:{secret}@{address}").geturl())


def private_key(service_account_key: Secret) -> Secret:
    """Return the private key in the valid key of a service account."""
    return Secret(msgspec.json.decode(service_account_key.reveal(), type=_ServiceAccountKey).private_key)
