"""JSON web tokens, verified with keys that an issuer publishes as a JSON Web Key Set.

The set is fetched when the first token arrives, again every few minutes, and when a token names a key that it does
not have, so that a rotation of keys needs no restart. If the set cannot be fetched, the last one stays in use:
requests must not fail because the issuer restarts. Without any, the server cannot tell who sent a token.

Only public keys are used (`usable_key`): anyone can read the set, so a shared secret in it would let anyone sign.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import jwt
import msgspec

from sentinel.core.access import Identity
from sentinel.core.json import DECODE_ERRORS
from sentinel.drivers.identity.jwt import ANY_CLAIMS, ExpectedClaims, Key, TokenVerifier, is_jwt, usable_key
from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import ServerError
from sentinel.drivers.rest.proxies import Proxies
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.log import Log, get_logger
from sentinel.version import __version__

MAX_AGE: Final = timedelta(minutes=5)
"""How long a set is used before it is fetched again."""
MIN_INTERVAL: Final = timedelta(seconds=10)
"""Between two fetches. Anyone can send a token with an unknown key."""

_TIMEOUT = timedelta(seconds=5)
_MAX_BYTES = 256 * 1024
_MAX_KEYS = 100


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, object]]


class PublishedKey(msgspec.Struct, frozen=True):
    """A key of the set."""

    id: str
    """Its `kid`; empty if it has none."""
    key: Key


class JwtKeySet:
    """`ports.identity.Identities` with the keys at a URL."""

    def __init__(
        self,
        url: str,
        *,
        expected: ExpectedClaims = ANY_CLAIMS,
        log: Log | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Proxies are those of `environ`."""
        self._url = url
        self._log = log or get_logger("jwt")
        self._monotonic = monotonic
        self._environ = environ
        self._verifier = TokenVerifier(expected, now=now)
        self._fetching = asyncio.Lock()
        self._keys: Sequence[PublishedKey] = ()
        self._body: bytes | None = None
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._problem = "it was not fetched yet"

    async def identify(self, token: str) -> Identity | None:
        """Return the token's identity, or None if it is not a JWT, has a wrong signature, or is not valid now.

        Raises `Unavailable` if there is no set of keys yet.
        """
        if not is_jwt(token):
            return None
        key_id = _key_id(token)
        if key_id is None:
            return None
        is_known = bool(self._candidates(key_id))
        is_old = self._monotonic() - self._fetched_at >= MAX_AGE.total_seconds()
        # The first caller that finds the set old fetches it. Others go on with it, unless they need another key.
        if not is_known or (is_old and not self._fetching.locked()):
            await self._fetch_if_due()
        if not self._keys and self._problem:
            raise Unavailable(f"{self._url}: {self._problem}")
        for candidate in self._candidates(key_id):
            identity = self._verifier.identity(token, candidate.key)
            if identity is not None:
                return identity
        return None

    def _candidates(self, key_id: str) -> list[PublishedKey]:
        """The keys that a token with this `kid` may be signed with."""
        return [each for each in self._keys if not key_id or each.id == key_id]

    async def _fetch_if_due(self) -> None:
        async with self._fetching:
            now = self._monotonic()
            if now - self._tried_at < MIN_INTERVAL.total_seconds():
                return
            self._tried_at = now
            try:
                body = await self._fetch()
                if body != self._body:  # equal keys stay the same objects, so verified tokens stay remembered
                    self._keys = list(_read(body, self._log))
                    self._body = body
            except (ServerError, Misconfigured) as error:
                problem = str(error)
                if problem != self._problem:
                    self._log.warning("jwks.unusable", url=self._url, problem=problem)
                self._problem = problem
            else:
                self._fetched_at, self._problem = now, ""

    async def _fetch(self) -> bytes:
        parts = urlsplit(self._url)
        client = RestClient(
            base_url=f"{parts.scheme}://{parts.netloc}",
            user_agent=f"sentinel/{__version__}",
            proxies=Proxies(self._environ),
        )
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        try:
            return bytes((await client.request("GET", path, timeout=_TIMEOUT, limit=_MAX_BYTES)).body)
        finally:
            await client.close()


def _key_id(token: str) -> str | None:
    """Return the `kid` of a token, empty if it has none; None if the token cannot be read."""
    try:
        key_id = jwt.get_unverified_header(token).get("kid", "")
    except jwt.PyJWTError:
        return None
    return key_id if isinstance(key_id, str) else None


def _read(body: bytes, log: Log) -> Iterator[PublishedKey]:
    """Yield the usable keys of a set. Raises `Misconfigured` if it is not a set."""
    try:
        published = msgspec.json.decode(body, type=_KeySet).keys
    except DECODE_ERRORS:
        raise Misconfigured('expected a JSON Web Key Set such as {"keys": […]}, got something else') from None
    for each in published[:_MAX_KEYS]:
        key_id = each.get("kid", "")
        if each.get("use", "sig") != "sig" or not isinstance(key_id, str):
            continue
        try:
            parsed = jwt.PyJWK.from_dict(dict(each)).key
            yield PublishedKey(key_id, usable_key(parsed, where=f"key {key_id}"))
        except (jwt.PyJWTError, Misconfigured, ValueError, TypeError) as error:
            log.warning("jwks.key_unusable", key=key_id, problem=str(error))
