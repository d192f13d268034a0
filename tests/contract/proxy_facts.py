"""The contract of every `ports.proxy_facts.ProxyFacts`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime

import msgspec

from sentinel.core.proxy.facts import Certificate, Facts, Outcome, PrivateKey, Questions, Resolve, Unreadable
from sentinel.ports.proxy_facts import ProxyFacts, gather

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class FactsHarness(ABC):
    """Names and files under the control of the test."""

    facts: ProxyFacts

    @abstractmethod
    def set_addresses(self, host: str, *addresses: str) -> None:
        """Let a name have these addresses. Other names have none."""

    @abstractmethod
    def looked_up(self) -> list[str]:
        """Return the names that were looked up."""

    @abstractmethod
    def pair(self, name: str) -> tuple[bytes, bytes]:
        """Return a certificate for this host name, valid at `NOW`, and its key."""


class ProxyFactsContract:
    """For every implementation."""

    async def test_each_name_has_an_answer(self, harness: FactsHarness) -> None:
        harness.set_addresses("good", "10.0.0.1", "fe80::1")

        found = await harness.facts.resolve(["good", "bad"])

        assert {host: answer.outcome for host, answer in found.items()} == {
            "good": Outcome.USABLE,
            "bad": Outcome.FAILED,
        }
        assert found["bad"].reason == "no such name"

    async def test_a_name_is_looked_up_once_in_a_call(self, harness: FactsHarness) -> None:
        harness.set_addresses("good", "10.0.0.1")

        found = await harness.facts.resolve(["good", "good"])

        assert list(found) == ["good"]
        assert harness.looked_up() == ["good"]

    async def test_a_name_that_leads_to_a_forbidden_address_is_forbidden(self, harness: FactsHarness) -> None:
        harness.set_addresses("trap", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1")
        harness.set_addresses("mixed", "10.0.0.1", "169.254.169.254")
        harness.set_addresses("local", "fe80::1", "fe80::2")

        found = await harness.facts.resolve(["trap", "mixed", "local"])

        assert {answer.outcome for answer in found.values()} == {Outcome.FORBIDDEN}

    async def test_forbidden_hosts_and_ip_addresses_are_not_looked_up(self, harness: FactsHarness) -> None:
        found = await harness.facts.resolve(["metadata.google.internal", "0xa9fea9fe", "fe80::1", "10.0.0.1"])

        assert [answer.outcome for answer in found.values()] == [Outcome.FORBIDDEN] * 3 + [Outcome.USABLE]
        assert harness.looked_up() == []

    async def test_a_certificate_and_its_key_have_the_same_digest(self, harness: FactsHarness) -> None:
        content, key_content = harness.pair("a.example")

        certificates = await harness.facts.read_certificates({"secret:c": content})
        keys = await harness.facts.read_keys({"secret:k": key_content})

        [certificate] = as_chain(certificates["secret:c"])
        assert keys["secret:k"] == PrivateKey(certificate.public_key)
        assert certificate.names == ("a.example",)
        assert certificate.not_before <= NOW <= certificate.not_after

    async def test_different_keys_have_different_digests(self, harness: FactsHarness) -> None:
        contents = {name: harness.pair(name)[1] for name in ("a", "b")}

        found = await harness.facts.read_keys(contents)

        assert found["a"] != found["b"]

    async def test_garbage_is_unreadable(self, harness: FactsHarness) -> None:
        certificates = await harness.facts.read_certificates({"c": b"garbage", "d": b""})
        keys = await harness.facts.read_keys({"k": b"garbage"})

        assert [type(found) for found in (*certificates.values(), *keys.values())] == [Unreadable] * 3

    async def test_gathered_facts_answer_what_was_asked(self, harness: FactsHarness) -> None:
        harness.set_addresses("good", "10.0.0.1")
        content, key_content = harness.pair("a.example")
        questions = Questions(
            hosts=("good",), certificates=("secret:c", "env:C"), keys=("secret:k",), secrets=("c", "k")
        )

        facts = await gather(
            harness.facts,
            questions,
            now=NOW,
            resolve=Resolve.WARN,
            contents={"secret:c": content, "secret:k": key_content, "secret:other": b"x"},
            secrets=["c", "other"],
        )

        assert (facts.now, facts.resolve, facts.secrets) == (NOW, Resolve.WARN, frozenset({"c", "other"}))
        assert list(facts.hosts) == ["good"]
        assert list(facts.certificates) == ["secret:c"]
        assert list(facts.keys) == ["secret:k"]

    async def test_nothing_is_found_out_that_the_caller_does_not_want(self, harness: FactsHarness) -> None:
        questions = Questions(hosts=("good",), certificates=("secret:c",), keys=("secret:k",), secrets=("c",))

        facts = await gather(harness.facts, questions, now=NOW)

        assert msgspec.structs.replace(facts, now=None) == Facts()
        assert harness.looked_up() == []


def as_chain(found: tuple[Certificate, ...] | Unreadable) -> tuple[Certificate, ...]:
    assert isinstance(found, tuple)
    return found
