"""A verified fake of the facts about names and certificates that the check of a proxy's configuration needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sentinel.core.proxy import addresses
from sentinel.core.proxy.facts import Certificate, Outcome, PrivateKey, Resolution, Unreadable
from sentinel.ports.proxy_facts import ProxyFacts


class FakeProxyFacts(ProxyFacts):
    """Knows what a test tells it. Other names do not exist, other contents cannot be read."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        """The names that were looked up."""
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._certificates: dict[bytes, tuple[Certificate, ...]] = {}
        self._keys: dict[bytes, PrivateKey] = {}

    def set_addresses(self, host: str, *found: str) -> None:
        """Let a name have these IP addresses."""
        self._addresses[host] = found

    def set_certificates(self, content: bytes, *chain: Certificate) -> None:
        """Let a file contain these certificates."""
        self._certificates[content] = chain

    def set_key(self, content: bytes, key: PrivateKey) -> None:
        """Let a file contain this private key."""
        self._keys[content] = key

    async def resolve(self, hosts: Collection[str]) -> Mapping[str, Resolution]:
        return {host: self._resolve(host) for host in dict.fromkeys(hosts)}

    async def read_certificates(
        self, contents: Mapping[str, bytes]
    ) -> Mapping[str, tuple[Certificate, ...] | Unreadable]:
        unknown = Unreadable("contains a certificate that is damaged")
        return {reference: self._certificates.get(content, unknown) for reference, content in contents.items()}

    async def read_keys(self, contents: Mapping[str, bytes]) -> Mapping[str, PrivateKey | Unreadable]:
        unknown = Unreadable("contains a private key that is damaged")
        return {reference: self._keys.get(content, unknown) for reference, content in contents.items()}

    def _resolve(self, host: str) -> Resolution:
        if addresses.is_forbidden(host):
            return Resolution(Outcome.FORBIDDEN)
        if addresses.is_ip_address(host):
            return Resolution(Outcome.USABLE)
        self.looked_up.append(host)
        found = self._addresses.get(host)
        if not found:
            return Resolution(Outcome.FAILED, "no such name")
        return Resolution(Outcome.FORBIDDEN if addresses.are_forbidden(found) else Outcome.USABLE)
