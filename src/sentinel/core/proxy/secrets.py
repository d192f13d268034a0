"""The secrets that a configuration needs.

A configuration names its certificates and keys, and does not contain them:

    tls {
        cert secret="api-cert"                     // stored in the hub, encrypted
        key vault="secret/data/api/tls#key"        // read by the agent, from Vault
    }

With `env=` the agent reads an environment variable. `render` replaces all three by paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.kdl import Document, Node, Place, Value
from sentinel.core.proxy.outline import TlsBlock, place_of, tls_blocks

CERTIFICATE: Final = "cert"
KEY: Final = "key"


class Origin(StrEnum):
    """Where the value of a secret comes from. The names of the properties."""

    HUB = "secret"
    ENV = "env"
    VAULT = "vault"


_PATTERNS: Final = {
    Origin.HUB: re.compile(r"[^\s/#]+"),
    Origin.ENV: re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    Origin.VAULT: re.compile(r"[^\s#]+#[^\s#]+"),
}


class Reference(msgspec.Struct, frozen=True):
    """The name of a secret. As text: `secret:api-cert`, `env:API_CERT_PATH`, `vault:secret/data/api/tls#key`."""

    origin: Origin
    name: str

    def __str__(self) -> str:
        return f"{self.origin}:{self.name}"


def shown(reference: Reference | str) -> str:
    """Return how a message names it.

    A message that has `secret:api-cert` loses the name: in logs and on terminals, what stands behind `secret:` is
    masked.
    """
    origin, _, name = str(reference).partition(":")
    return f"the secret {name}" if origin == Origin.HUB else str(reference)


class SecretUse(msgspec.Struct, frozen=True):
    """A `cert` or a `key` that names a secret."""

    block: TlsBlock
    node: Node
    reference: Reference | None
    """None if it cannot be read."""

    @property
    def place(self) -> Place:
        """Where the name of the secret is written, or the node if that cannot be read."""
        return place_of(self.node if self.reference is None else _name_of(self.node, self.reference.origin))


class NeededSecret(msgspec.Struct, frozen=True):
    """A secret, and where the configuration names it first."""

    reference: Reference
    place: Place


def secret_uses(document: Document) -> Iterator[SecretUse]:
    """Return each `cert` and `key` with at least one of the properties that name a secret."""
    for block in tls_blocks(document):
        yield from secret_uses_of(block)


def secret_uses_of(block: TlsBlock) -> Iterator[SecretUse]:
    """Return those of one block, without the `sni` blocks in it."""
    for node in block.node.children:
        if node.name in (CERTIFICATE, KEY) and any(each.name in _PATTERNS for each in node.properties):
            yield SecretUse(block, node, secret_reference(node))


def needed_secrets(document: Document) -> list[NeededSecret]:
    """Return the secrets that a configuration needs, each once, in the order in which they are written.

    What cannot be read as a reference is left out. The schema reports it.
    """
    first: dict[Reference, Place] = {}
    for use in sorted(secret_uses(document), key=lambda each: (each.place.line, each.place.column)):
        if use.reference is not None:
            first.setdefault(use.reference, use.place)
    return [NeededSecret(reference, place) for reference, place in first.items()]


def secret_reference(node: Node) -> Reference | None:
    """Return the secret that a `cert` or `key` names, or None if it names none, several, or something else too."""
    origins = {each.name for each in node.properties} & _PATTERNS.keys()
    if len(origins) != 1 or node.arguments:
        return None
    origin = Origin(origins.pop())
    name = _name_of(node, origin).value
    if not isinstance(name, str) or not name.isprintable() or _PATTERNS[origin].fullmatch(name) is None:
        return None
    return Reference(origin, name)


def _name_of(node: Node, origin: Origin) -> Value:
    """Return where the name of the secret is written. If that is twice, the last one counts."""
    return next(each.value for each in reversed(node.properties) if each.name == origin)
