"""Driver and fake keep the promises of `ports.proxy_facts`."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from sentinel.core.proxy.facts import Certificate, PrivateKey
from sentinel.drivers.proxy_facts import SystemProxyFacts
from sentinel.runtime.certificates import issue
from sentinel.testing.proxy_facts import FakeProxyFacts
from tests.contract.proxy_facts import NOW, FactsHarness, ProxyFactsContract


class DriverHarness(FactsHarness):
    def __init__(self) -> None:
        self.facts = SystemProxyFacts(lookup=self._lookup)
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._looked_up: list[str] = []

    def set_addresses(self, host: str, *addresses: str) -> None:
        self._addresses[host] = addresses

    def looked_up(self) -> list[str]:
        return self._looked_up

    def pair(self, name: str) -> tuple[bytes, bytes]:
        files = issue([name], subject="tests", now=NOW, previous=None)
        return files.certificate, files.key

    def _lookup(self, host: str) -> tuple[str, ...]:
        self._looked_up.append(host)
        if host not in self._addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._addresses[host]


class FakeHarness(FactsHarness):
    def __init__(self) -> None:
        self.facts: FakeProxyFacts = FakeProxyFacts()

    def set_addresses(self, host: str, *addresses: str) -> None:
        self.facts.set_addresses(host, *addresses)

    def looked_up(self) -> list[str]:
        return self.facts.looked_up

    def pair(self, name: str) -> tuple[bytes, bytes]:
        day = timedelta(days=1)
        content, key = f"{name}.crt".encode(), f"{name}.key".encode()
        self.facts.set_certificates(content, Certificate(NOW - day, NOW + day, name, (name,)))
        self.facts.set_key(key, PrivateKey(name))
        return content, key


class TestSystemProxyFacts(ProxyFactsContract):
    @pytest.fixture
    def harness(self) -> FactsHarness:
        return DriverHarness()


class TestFakeProxyFacts(ProxyFactsContract):
    @pytest.fixture
    def harness(self) -> FactsHarness:
        return FakeHarness()
