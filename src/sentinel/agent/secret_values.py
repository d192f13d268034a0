"""The values of the secrets that a configuration names, wherever they come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias, assert_never

import msgspec

from sentinel.core.proxy.secrets import Origin, Reference, shown
from sentinel.ports.errors import Misconfigured, Unavailable
from sentinel.runtime.secret_text import is_secret_name

_PEM: Final = "-----BEGIN "

ReadVault: TypeAlias = Callable[[str, str], Awaitable[bytes]]
"""Reads a field of a secret in Vault. Raises `Unavailable` and `Misconfigured`."""


class SecretFailure(Exception):
    """A secret has no value. The text says which and why, without values."""


class FoundSecrets(msgspec.Struct, frozen=True):
    """Secrets, by their references as text."""

    values: Mapping[str, bytes]
    """Values that have to be written to files."""
    paths: Mapping[str, str]
    """Paths of existing files."""


class SecretValues:
    """Finds values of secrets."""

    def __init__(self, *, environ: Mapping[str, str], read_vault: ReadVault | None) -> None:
        """`environ` is for references with `env=`. Without `read_vault` there is no Vault."""
        self._environ = environ
        self._read_vault = read_vault

    async def find(self, references: Iterable[Reference], from_hub: Mapping[str, bytes]) -> FoundSecrets:
        """Return all of them. Raises `SecretFailure`."""
        values, paths = dict[str, bytes](), dict[str, str]()
        for reference in references:
            match reference.origin:
                case Origin.HUB:
                    if reference.name not in from_hub:
                        raise SecretFailure(f"the hub has not sent {shown(reference)}")
                    values[str(reference)] = from_hub[reference.name]
                case Origin.ENV:
                    text = self._environ.get(reference.name, "")
                    if not text:
                        raise SecretFailure(f"{reference}: the agent has no such environment variable")
                    if _PEM in text:
                        values[str(reference)] = text.encode()
                    elif is_secret_name(reference.name) and not text.startswith("/"):
                        # A token must not pass as a path: the proxy's file and messages would show it.
                        raise SecretFailure(f"{reference}: expected PEM, or an absolute path")
                    else:
                        paths[str(reference)] = text
                case Origin.VAULT:
                    values[str(reference)] = await self._from_vault(reference)
                case _:
                    assert_never(reference.origin)
        return FoundSecrets(values, paths)

    async def _from_vault(self, reference: Reference) -> bytes:
        if self._read_vault is None:
            raise SecretFailure(
                f"VAULT_ADDR and VAULT_TOKEN are not set for the agent, which needs them for {reference}"
            )
        path, _, field = reference.name.partition("#")
        try:
            return await self._read_vault(path, field)
        except (Unavailable, Misconfigured) as error:
            raise SecretFailure(f"{error} ({reference})") from error
