"""As whom to call an API server: by a token, a client certificate, a password, or what a plugin issues.

The REST client reads the token and the TLS context before each request, synchronously. A plugin is a process, so
its credentials are refreshed before that: `refresh` runs it when they expire, `renew` when the server refused
them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from sentinel.drivers.kube.exec_plugin import ExecPlugin, IssuedCredentials
from sentinel.drivers.rest.tls import Tls, TlsSettings
from sentinel.drivers.rest.token import BasicCredentials, BearerToken
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.secrets import Redactor

MAX_SKEW = timedelta(seconds=30)
"""Credentials are renewed this long before they expire, or after half of their life if that is shorter."""

_REMEMBERED = 4
"""Tokens and keys to redact: the current ones, and those of requests that are still in flight."""


def system_now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


class Credentials:
    """The current credentials. All clients of one API server share them."""

    def __init__(
        self,
        *,
        tls: TlsSettings,
        token: str = "",
        token_file: Path | None = None,
        user_name: str = "",
        password: str = "",
        plugin: ExecPlugin | None = None,
        on_secret: Callable[[str], None] = lambda secret: None,
        now: Callable[[], datetime] = system_now,
    ) -> None:
        """`token` takes precedence over `token_file`, which is read for every request. Both take precedence over
        `user_name` and `password`. `on_secret` is called with every secret before its first use, and with
        all that are still in use when one is replaced.
        """
        if user_name and not token and token_file is None:
            self.token: BearerToken = BasicCredentials(user_name, password, on_token=self._remember)
        else:
            self.token = BearerToken(token, file=token_file, on_token=self._remember)
        self.tls = Tls(tls)
        self._configured_tls = tls
        self._plugin = plugin
        self._secrets = tuple(filter(None, (password, tls.key_data.reveal())))
        self._recent: deque[str] = deque(maxlen=_REMEMBERED)
        self._on_secret = on_secret
        self._now = now
        self._running = asyncio.Lock()
        self._version = 0
        self._renew_at: datetime | None = None
        """When to run the plugin again; None if the credentials do not expire."""
        self._expires_at: datetime | None = None
        for secret in self._secrets:
            on_secret(secret)

    def check(self) -> None:
        """Read all files now, so that a mistake shows before the first call. Raises `Misconfigured`."""
        self.token.read()
        self.tls.context()

    async def refresh(self) -> int:
        """Make sure that the credentials are valid for some time, and return their version, for `renew`.

        Raises `KubeUnavailable` if the plugin fails, and `Misconfigured`.
        """
        if self._plugin is None or not self._is_due():
            return self._version
        async with self._running:
            if self._is_due():  # not renewed by another call meanwhile
                try:
                    await self._run(self._plugin)
                except (Unavailable, Misconfigured):
                    if not self._version or self._is_expired():
                        raise
        return self._version

    async def renew(self, version: int) -> bool:
        """Replace credentials that the server refused; return False if there is no way to get others."""
        if self._plugin is None:
            return False
        async with self._running:
            if self._version == version:  # not renewed by another call meanwhile
                await self._run(self._plugin)
        return True

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        return Redactor((*self._secrets, *self._recent)).redact(text)

    def _is_due(self) -> bool:
        return not self._version or (self._renew_at is not None and self._now() >= self._renew_at)

    def _is_expired(self) -> bool:
        return self._expires_at is not None and self._now() >= self._expires_at

    async def _run(self, plugin: ExecPlugin) -> None:
        issued = await plugin.run(redact=self.redact)
        self._use(issued)
        self._version += 1
        self._expires_at = issued.expires_at
        self._renew_at = None
        if issued.expires_at is not None:
            life = max(issued.expires_at - self._now(), timedelta(0))
            self._renew_at = issued.expires_at - min(MAX_SKEW, life / 2)

    def _use(self, issued: IssuedCredentials) -> None:
        if issued.key:
            self._remember(issued.key.reveal())
        self.token.use(issued.token.reveal())
        if issued.certificate:
            certificate = msgspec.structs.replace(
                self._configured_tls, certificate_data=issued.certificate, key_data=issued.key
            )
            self.tls.use(certificate)

    def _remember(self, secret: str) -> None:
        self._recent.append(secret)
        # The others again, because only the last few may count as in use.
        for each in (*self._secrets, secret):
            self._on_secret(each)
