"""The real `ports.proxy_facts.ProxyFacts`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import TypeVar

from sentinel.core.proxy.facts import Certificate, PrivateKey, Resolution, Unreadable
from sentinel.drivers.proxy_facts.names import Limits, Lookup, Resolver, system_lookup
from sentinel.ports.proxy_facts import ProxyFacts
from sentinel.runtime.blocking import run_in_thread

T = TypeVar("T")


class SystemProxyFacts(ProxyFacts):
    """Asks the system's resolver, and reads certificates and keys in a thread."""

    def __init__(self, *, limits: Limits | None = None, lookup: Lookup = system_lookup) -> None:
        self._limits = limits or Limits()
        self._resolver = Resolver(limits=self._limits, lookup=lookup)

    async def resolve(self, hosts: Collection[str]) -> Mapping[str, Resolution]:
        return await self._resolver.resolve(hosts)

    async def read_certificates(
        self, contents: Mapping[str, bytes]
    ) -> Mapping[str, tuple[Certificate, ...] | Unreadable]:
        if not contents:
            return {}
        from sentinel.drivers.proxy_facts import pem  # looking up names does not need cryptography

        return await self._read(contents, pem.read_certificates)

    async def read_keys(self, contents: Mapping[str, bytes]) -> Mapping[str, PrivateKey | Unreadable]:
        if not contents:
            return {}
        from sentinel.drivers.proxy_facts import pem

        return await self._read(contents, pem.read_key)

    async def _read(self, contents: Mapping[str, bytes], read: Callable[[bytes], T]) -> dict[str, T]:
        """Read as many as the limits allow, in a thread, because checking a large key takes seconds."""
        found: dict[str, T] = {}
        is_late = False

        def read_all() -> None:
            for reference, content in islice(contents.items(), self._limits.files):
                if is_late:
                    return
                found[reference] = read(content)

        if contents:
            try:
                async with asyncio.timeout(self._limits.time.total_seconds()):
                    await run_in_thread(read_all, name="certificates")
            except TimeoutError:
                pass
            finally:
                is_late = True
        return dict(found)
