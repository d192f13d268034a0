"""Certificates and their keys: whether they belong together and are in date.

They are known by reference, because they are not in the configuration: a secret, or a file on the proxy's host.
Those whose contents are not among the facts are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from sentinel.core.kdl import Document, Node, Place
from sentinel.core.proxy.facts import Certificate, Facts, PrivateKey, Unreadable
from sentinel.core.proxy.outline import TlsBlock, child, children, place_of, text_argument, tls_blocks
from sentinel.core.proxy.problem import Problem, Severity, semantic_problem
from sentinel.core.proxy.render import RENDERED_KEYS
from sentinel.core.proxy.secrets import CERTIFICATE, KEY, secret_uses_of, shown

EXPIRES_SOON: Final = timedelta(days=30)


class Material(msgspec.Struct, frozen=True):
    """A certificate or a key, and where the configuration names it."""

    reference: str
    """A reference such as `secret:api-cert` or `file:/etc/api.crt`."""
    place: Place


class Pair(msgspec.Struct, frozen=True):
    """What a `tls` or `sni` block names."""

    certificate: Material | None
    key: Material | None
    hostnames: tuple[str, ...] = ()
    """The host names for which this certificate is chosen."""


def pairs(document: Document) -> Iterator[Pair]:
    """Return the certificates and keys of a configuration."""
    for block in tls_blocks(document):
        yield Pair(_material(block, CERTIFICATE), _material(block, KEY), tuple(_hostnames(block.node)))


def check(document: Document, facts: Facts) -> list[Problem]:
    """Return what is wrong with certificates and keys. The same problem is reported where it is first seen."""
    first: dict[tuple[str, str], Problem] = {}
    for pair in pairs(document):
        for problem in _check_pair(pair, facts):
            first.setdefault((problem.code, problem.message), problem)
    return list(first.values())


def _material(block: TlsBlock, name: str) -> Material | None:
    """Return a secret, or otherwise the file that is named with the proxy's own word."""
    for use in secret_uses_of(block):
        if use.node.name == name and use.reference is not None:
            return Material(str(use.reference), use.place)
    node_of_file = child(block.node, RENDERED_KEYS[block.owner.kind, name])
    path = text_argument(node_of_file) if node_of_file is not None else None
    return None if path is None else Material(f"file:{path.value}", place_of(path))


def _hostnames(block: Node) -> Iterator[str]:
    if block.name == "sni":
        for node in (*children(block, "hostnames"), *children(block, "priority-hostnames")):
            yield from (each.value for each in node.arguments if isinstance(each.value, str))


def _check_pair(pair: Pair, facts: Facts) -> Iterator[Problem]:
    chain = facts.certificates.get(pair.certificate.reference) if pair.certificate is not None else None
    key = facts.keys.get(pair.key.reference) if pair.key is not None else None
    if pair.certificate is not None and isinstance(chain, Unreadable):
        yield _unreadable("certificate", pair.certificate, chain)
    if pair.key is not None and isinstance(key, Unreadable):
        yield _unreadable("key", pair.key, key)
    if pair.certificate is None or not isinstance(chain, tuple) or not chain:
        return
    if facts.now is not None:
        yield from _check_dates(pair.certificate, chain, facts.now)
    uncovered = [name for name in pair.hostnames if not _covers(chain[0].names, name)]
    if chain[0].names and uncovered:
        yield semantic_problem(
            "certificate-name",
            pair.certificate.place,
            f"expected a certificate for {uncovered[0]}, got {shown(pair.certificate.reference)},"
            f" which is for {_listed(chain[0].names)}",
            severity=Severity.WARNING,
        )
    if pair.key is not None and isinstance(key, PrivateKey) and key.public_key != chain[0].public_key:
        belongs_to_another = key.public_key in {each.public_key for each in chain}
        yield _mismatch(pair.certificate, pair.key, belongs_to_another=belongs_to_another)


def _check_dates(found: Material, chain: tuple[Certificate, ...], now: datetime) -> Iterator[Problem]:
    for number, certificate in enumerate(chain, 1):
        what = shown(found.reference) + (f" (certificate {number} of {len(chain)})" if len(chain) > 1 else "")
        severity = Severity.ERROR
        if now < certificate.not_before:
            code, which = "certificate-not-yet-valid", f"is not valid before {_shown(certificate.not_before)}"
        elif now > certificate.not_after:
            code, which = "certificate-expired", f"expired at {_shown(certificate.not_after)}"
        elif certificate.not_after - now < EXPIRES_SOON:
            code, which = "certificate-expires-soon", f"expires at {_shown(certificate.not_after)}"
            severity = Severity.WARNING
        else:
            continue
        wanted = f"for another {EXPIRES_SOON.days} days" if severity is Severity.WARNING else "now"
        message = f"expected a certificate that is valid {wanted}, got {what}, which {which}"
        yield semantic_problem(code, found.place, message, severity=severity, suggestion="renew it")


def _unreadable(what: str, found: Material, why: Unreadable) -> Problem:
    message = f"expected a {what} in PEM, got {shown(found.reference)}, which {why.reason}"
    return semantic_problem(f"unreadable-{what}", found.place, message)


def _mismatch(certificate: Material, key: Material, *, belongs_to_another: bool) -> Problem:
    suggestion = None
    if belongs_to_another:
        suggestion = (
            f"the key belongs to a later certificate of {shown(certificate.reference)}; move that to the start"
        )
    wanted, found = shown(certificate.reference), shown(key.reference)
    message = f"expected the key of {wanted}, got {found}, which does not belong to it"
    return semantic_problem("certificate-key-mismatch", key.place, message, suggestion=suggestion)


def _covers(names: Iterable[str], host: str) -> bool:
    """Whether one of the names of a certificate is this host, or a wildcard for its first label."""
    host = host.lower()
    _, dot, domain = host.partition(".")
    return any(name.lower() in (host, f"*{dot}{domain}") for name in names)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shown(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
