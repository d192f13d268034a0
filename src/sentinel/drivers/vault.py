"""Reads secrets from Vault or OpenBao, from its key-value store in version 2."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final
from urllib.parse import quote

import msgspec

from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.drivers.rest.url import InvalidUrl
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.secrets import Secret

TIMEOUT: Final = timedelta(seconds=10)
_LIMIT: Final = 2 * 1024 * 1024
_DOTS = re.compile(r"(^|/)\.{1,2}(/|$)")


class _Version(msgspec.Struct, frozen=True):
    data: dict[str, msgspec.Raw] | None = None


class _Response(msgspec.Struct, frozen=True):
    data: _Version | None = None


class VaultReader:
    """Reads fields of secrets."""

    def __init__(self, *, address: str, token: Secret, namespace: str = "", user_agent: str) -> None:
        """Raises `Misconfigured` for an invalid address."""
        try:
            self._client = RestClient(base_url=address, user_agent=user_agent, connections=2)
        except InvalidUrl as error:
            raise Misconfigured(f"VAULT_ADDR: {error}") from error
        self._headers = {"X-Vault-Token": token.reveal(), "X-Vault-Request": "true"}
        if namespace:
            self._headers["X-Vault-Namespace"] = namespace

    async def read(self, path: str, field: str) -> bytes:
        """Return a field of the newest version. `path` is that of the API, such as `secret/data/api/tls`.

        Raises `Unavailable` if Vault does not respond, and `Misconfigured` if it does not hand it out.
        """
        if _DOTS.search(path):
            raise Misconfigured(f"{path}: expected the path of a secret")
        try:
            response = await self._client.request(
                "GET", f"/v1/{quote(path.strip('/'))}", timeout=TIMEOUT, limit=_LIMIT, headers=self._headers
            )
        except RequestRejected as error:
            raise Misconfigured(_rejection(path, error.response.status)) from error
        except ServerError as error:
            raise Unavailable(f"Vault: {error}") from error
        try:
            version = msgspec.json.decode(response.body, type=_Response).data
        except msgspec.DecodeError:
            version = None
        if version is None or version.data is None:
            raise Misconfigured(f"Vault: {path}: expected a secret of a key-value store in version 2")
        if field not in version.data:
            raise Misconfigured(f"Vault: {path}: there is no field {field}")
        try:
            return msgspec.json.decode(version.data[field], type=str).encode()
        except msgspec.DecodeError:
            raise Misconfigured(f"Vault: {path}: expected text in the field {field}") from None

    async def close(self) -> None:
        await self._client.close()


def _rejection(path: str, status: int) -> str:
    match status:
        case 403:
            return f"Vault: {path}: VAULT_TOKEN does not allow it"
        case 404:
            return f"Vault: {path}: there is no such secret"
        case _:
            return f"Vault: {path}: responded {status}"
