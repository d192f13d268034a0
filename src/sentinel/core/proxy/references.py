"""Ids and what refers to them: duplicates, dangling references, and upstreams that nothing uses.

Names are looked up as the proxy does: in the service, in its namespace, among what namespaces export, and at the
top level. `namespace:id` and `namespace:service:id` name one scope.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from sentinel.core import kdl
from sentinel.core.proxy.findings import Code, Findings, shown
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema import Kind

Scope: TypeAlias = tuple[str, ...]
"""Nothing at the top level, the namespace, or the namespace and the service."""

_LAST_WINS: Final = frozenset((Kind.UPSTREAM, Kind.FILTER))
"""Of these the proxy silently takes the last where one block has an id twice."""


class _Definition(msgspec.Struct):
    at: kdl.Value
    block: int
    """Which `upstreams` or `filters` block it is in."""
    is_used: bool = False


class _Reference(msgspec.Struct, frozen=True):
    kind: Kind
    scope: Scope
    at: kdl.Value
    is_export: bool


class References:
    """The ids and references of a document."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._defined: dict[tuple[Scope, Kind], dict[str, _Definition]] = {}
        self._references: list[_Reference] = []
        self._exported: dict[Kind, dict[str, _Definition]] = {}
        self._uncertain: set[Kind] = set()
        self._meant: set[tuple[Kind, str]] = set()
        """What references with a mistake probably refer to."""

    def define(self, kind: Kind, scope: Scope, at: kdl.Value, block: int) -> None:
        """Note an id, and report it if it is taken."""
        name = str(at.value)
        known = self._defined.setdefault((scope, kind), {})
        first = known.get(name)
        known[name] = _Definition(at, block)
        if first is None:
            return
        is_silent = kind in _LAST_WINS and first.block == block
        self._findings.add(
            Severity.WARNING if is_silent else Severity.ERROR,
            Code.DUPLICATE_ID,
            at,
            f"expected another id for this {kind}, got {shown(name)}, which is taken on line {first.at.line}"
            + ("; the proxy uses the last one" if is_silent else ""),
            "rename or remove one of them",
        )

    def refer(self, kind: Kind, scope: Scope, at: kdl.Value, *, is_export: bool) -> None:
        """Note a reference."""
        self._references.append(_Reference(kind, scope, at, is_export))

    def doubt(self, kinds: frozenset[Kind]) -> None:
        """Note that ids of these kinds could not be read, so that nobody can tell what is dangling."""
        self._uncertain |= kinds

    def resolve(self) -> None:
        """Report what refers to nothing."""
        for reference in self._references:
            if reference.is_export:
                self._export(reference)
        for reference in self._references:
            if not reference.is_export:
                found = self._find(reference)
                if found is None:
                    self._report(reference)
                else:
                    found.is_used = True

    def report_unused(self) -> None:
        """Report upstreams that nothing refers to."""
        for (_, kind), definitions in self._defined.items():
            for name, definition in definitions.items():
                if kind is Kind.UPSTREAM and not definition.is_used and (kind, name) not in self._meant:
                    self._findings.warning(
                        Code.UNUSED,
                        definition.at,
                        f"expected a route to use the upstream {shown(name)}, got none",
                        "write upstream in a route, or remove it",
                    )

    def _export(self, reference: _Reference) -> None:
        name = str(reference.at.value)
        found = self._defined.get((reference.scope, reference.kind), {}).get(name)
        if found is None:
            self._report(reference)
        else:
            found.is_used = True
            self._exported.setdefault(reference.kind, {})[name] = found

    def _find(self, reference: _Reference) -> _Definition | None:
        name, kind = str(reference.at.value), reference.kind
        for depth in range(len(reference.scope), -1, -1):
            found = self._defined.get((reference.scope[:depth], kind), {}).get(name)
            if found is not None:
                return found
        if ":" in name:
            *scope, local = name.split(":")
            return self._defined.get((tuple(scope), kind), {}).get(local)
        return self._exported.get(kind, {}).get(name)

    def _names(self, reference: _Reference) -> set[str]:
        """Return what a reference may name."""
        kind, scope = reference.kind, reference.scope
        if reference.is_export:
            return set(self._defined.get((scope, kind), ()))
        scopes = [scope[:depth] for depth in range(len(scope) + 1)]
        return set(self._exported.get(kind, ())).union(*(self._defined.get((each, kind), ()) for each in scopes))

    def _report(self, reference: _Reference) -> None:
        kind = reference.kind
        if kind in self._uncertain:
            return
        if self._findings.is_full(Severity.ERROR):
            self._findings.drop(Severity.ERROR)
            return
        name = str(reference.at.value)
        nearest = self._findings.nearest(name, self._names(reference)) if self._findings.may_compare else None
        if nearest is not None:
            self._meant.add((kind, nearest))
        suggestion = f"add {kind} {shown(name)}" if nearest is None else f"write {shown(nearest)}"
        self._findings.error(
            Code.DANGLING_REFERENCE,
            reference.at,
            f"expected the id of {'an' if kind.value[0] in 'aeiou' else 'a'} {kind}, got {shown(name)}, "
            "which does not exist",
            suggestion,
        )
