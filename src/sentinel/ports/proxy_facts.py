"""What the check of level 3 has to know about the world: where names lead, and what certificates contain.

Two implementations ship: a real one, and one in `sentinel.testing` that knows what a test tells it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from sentinel.core.proxy.facts import Certificate, Facts, PrivateKey, Questions, Resolution, Resolve, Unreadable


class ProxyFacts(Protocol):
    """Finds out what a configuration depends on, within limits of time and number.

    Whatever names and contents are like, the result is an answer and not an error.
    """

    async def resolve(self, hosts: Collection[str]) -> Mapping[str, Resolution]:
        """Look up names. Each of them has an answer: beyond the limits, `NOT_TRIED`.

        Nothing is contacted but the name server. A forbidden host is not even looked up. A name that leads to a
        forbidden address is forbidden.
        """

    async def read_certificates(
        self, contents: Mapping[str, bytes]
    ) -> Mapping[str, tuple[Certificate, ...] | Unreadable]:
        """Read files of certificates, by reference, each with its certificates in the order of the file.

        A reference beyond the limits has no answer.
        """

    async def read_keys(self, contents: Mapping[str, bytes]) -> Mapping[str, PrivateKey | Unreadable]:
        """Read files of private keys, by reference. A reference beyond the limits has no answer."""


async def gather(
    source: ProxyFacts,
    questions: Questions,
    *,
    now: datetime,
    resolve: Resolve = Resolve.OFF,
    contents: Mapping[str, bytes] | None = None,
    secrets: Collection[str] | None = None,
) -> Facts:
    """Return the facts that answer these questions.

    `contents` has what the caller can read, by reference; the hub can read `secret:…` alone. `secrets` are the
    names of all secrets, or None if the caller does not know them.
    """
    known = contents or {}
    return Facts(
        now=now,
        resolve=resolve,
        hosts={} if resolve is Resolve.OFF else await source.resolve(questions.hosts),
        certificates=await source.read_certificates(_chosen(known, questions.certificates)),
        keys=await source.read_keys(_chosen(known, questions.keys)),
        secrets=None if secrets is None else frozenset(secrets),
    )


def _chosen(contents: Mapping[str, bytes], references: Collection[str]) -> dict[str, bytes]:
    return {reference: contents[reference] for reference in references if reference in contents}
