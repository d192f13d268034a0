"""Level 3: whether a configuration that fits the schema can work.

Two requests need one route, a certificate needs its key, a name needs an address. Most of that depends on the
world, so this module says what it has to know (`questions`) and judges what is known (`check_semantics`).
`route_conflicts` needs no facts, `certificates` and the rest here do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, assert_never

from sentinel.core.kdl import Document, Node, Place
from sentinel.core.proxy import addresses, certificates, route_conflicts
from sentinel.core.proxy.facts import Facts, Outcome, Questions, Resolution, Resolve
from sentinel.core.proxy.outline import Kind, child, children, definitions, place_of, text_argument
from sentinel.core.proxy.problem import Problem, Severity, semantic_problem
from sentinel.core.proxy.secrets import Origin, needed_secrets

MAX_PROBLEMS: Final = 1_000
"""More are counted, but not kept: a generated file may have one in every route."""

_SEVERITIES: Final = {Resolve.WARN: Severity.WARNING, Resolve.ERROR: Severity.ERROR}


def questions(document: Document) -> Questions:
    """Return what has to be known about the world to judge a configuration."""
    hosts = [host for host in _hosts(document) if not addresses.is_ip_address(host)]
    pairs = list(certificates.pairs(document))
    return Questions(
        hosts=tuple(host for host in hosts if not addresses.is_forbidden(host)),
        certificates=_once(pair.certificate.reference for pair in pairs if pair.certificate is not None),
        keys=_once(pair.key.reference for pair in pairs if pair.key is not None),
        secrets=tuple(
            needed.reference.name for needed in needed_secrets(document) if needed.reference.origin is Origin.HUB
        ),
    )


def check_semantics(document: Document, facts: Facts) -> list[Problem]:
    """Return the problems of level 3, by position. The same problem is reported where it is first seen."""
    found = [*route_conflicts.check(document), *certificates.check(document, facts)]
    if facts.secrets is not None:
        found += _missing_secrets(document, facts.secrets)
    found += _forbidden_hosts(document, facts)
    if facts.resolve is not Resolve.OFF:
        found += _unresolved_hosts(document, _SEVERITIES[facts.resolve], facts.hosts.get)
    return _limited(sorted(found, key=lambda problem: (problem.line, problem.column)))


def _limited(found: list[Problem]) -> list[Problem]:
    """Return the first problems, and one that says how many there are after them."""
    kept, dropped = found[:MAX_PROBLEMS], found[MAX_PROBLEMS:]
    if dropped:
        has_errors = any(problem.severity is Severity.ERROR for problem in dropped)
        last = Place(kept[-1].line or 1, kept[-1].column or 1)
        severity = Severity.ERROR if has_errors else Severity.WARNING
        message = (
            f"expected a configuration that can work, got {len(dropped)} more problems"
            f" after the first {MAX_PROBLEMS}"
        )
        kept.append(semantic_problem("too-many-problems", last, message, severity=severity))
    return kept


def _missing_secrets(document: Document, known: frozenset[str]) -> Iterator[Problem]:
    for needed in needed_secrets(document):
        name = needed.reference.name
        if needed.reference.origin is Origin.HUB and name not in known:
            yield semantic_problem(
                "missing-secret",
                needed.place,
                f"expected a secret that the hub has, got {name}",
                suggestion=f"create it: sentinel hub secret set {name}",
            )


def _forbidden_hosts(document: Document, facts: Facts) -> Iterator[Problem]:
    """Return the targets that no proxy may contact, whatever the setting says about others."""
    for host, place in _hosts(document).items():
        resolution = facts.hosts.get(host)
        is_trap = resolution is not None and resolution.outcome is Outcome.FORBIDDEN
        if is_trap or addresses.is_forbidden(host):
            message = (
                f"expected an address that a proxy may contact, got {host}, which is link-local or the"
                " metadata service of a cloud"
            )
            yield semantic_problem("forbidden-address", place, message)


def _unresolved_hosts(
    document: Document, severity: Severity, resolution_of: Callable[[str], Resolution | None]
) -> Iterator[Problem]:
    not_tried: list[Place] = []
    for host, place in _hosts(document).items():
        resolution = resolution_of(host)
        if resolution is None:
            continue
        match resolution.outcome:
            case Outcome.FAILED:
                message = f"expected an address that resolves, got {host}: {resolution.reason}"
                yield semantic_problem("unresolved-address", place, message, severity=severity)
            case Outcome.NOT_TRIED:
                not_tried.append(place)
            case Outcome.USABLE | Outcome.FORBIDDEN:
                pass
            case _ as other:
                assert_never(other)
    if not_tried:
        message = f"expected fewer or faster names to look up, got {len(not_tried)} that were not, this one first"
        yield semantic_problem("unchecked-address", not_tried[0], message, severity=Severity.WARNING)


def _hosts(document: Document) -> dict[str, Place]:
    """Return the hosts of all targets, and where each is written first."""
    found: dict[str, Place] = {}
    for definition in definitions(document):
        if definition.kind is Kind.UPSTREAM:
            for address, place in _target_addresses(definition.node):
                host = addresses.host_of(address)
                if host is not None:
                    found.setdefault(host, place)
    return found


def _target_addresses(upstream: Node) -> Iterator[tuple[str, Place]]:
    """Return the addresses of an upstream in all the ways in which they can be written."""
    for node in upstream.children:
        if node.name == "targets":
            for target in children(node, "target"):
                yield from _address(target)
        elif node.name in ("target", "address"):
            yield from _address(node)


def _address(target: Node) -> Iterator[tuple[str, Place]]:
    written, inner = target.property("address"), child(target, "address")
    candidates = (
        text_argument(target),
        None if written is None else written.value,
        None if inner is None else text_argument(inner),
    )
    for candidate in candidates:
        if candidate is not None and isinstance(candidate.value, str):
            yield candidate.value, place_of(candidate)
            return


def _once(references: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(references))
