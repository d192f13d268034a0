"""What has to be done so that resources are what files say they should be.

A plan is made of everything before anything is written. A resource is found by its id, or by its name within its
kind and parent. What a file says of spec and labels is all there should be, so that a key taken out of the file is
taken out of the resource; what a file does not mention stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from sentinel.cli.client import difference
from sentinel.cli.client.fleet import FetchedDocument, FleetClient, is_missing, read
from sentinel.cli.client.manifest import Manifest
from sentinel.core.fleet.documents import KindRules
from sentinel.core.json import Json
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.runtime.settings.report import closest_match, quoted


class PlanAction(StrEnum):
    """What is to be done about a resource."""

    CREATE = "create"
    CHANGE = "change"
    NONE = "none"


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one resource."""

    wanted: Manifest
    plural: str
    action: PlanAction
    parent: str | int | None = None
    """The id of the resource that it belongs to; or which step of this plan creates that."""
    current: FetchedDocument | None = None
    """As the resource is now; None for one that is to be created."""
    patch: dict[str, Json] = {}

    @property
    def title(self) -> str:
        return self.current.title if self.current else f"{self.plural}/{self.wanted.name}"


Existing: TypeAlias = dict[str, list[str]]
"""The ids of resources, by their names."""


class Planner:
    """Finds out what is there. Lists are walked once, however many documents are about their kind."""

    def __init__(self, fleet: FleetClient) -> None:
        self._fleet = fleet
        self._existing: dict[tuple[str, str], Existing] = {}
        self._planned: set[tuple[str, str | int | None, str]] = set()

    async def step(self, wanted: Manifest, before: Sequence[PlanStep]) -> PlanStep:
        """What is to be done about one document, after the steps `before` it; raises `ServerError`."""
        kind = await self._kind(wanted)
        parent = await self._parent(wanted, kind, before)
        identity = (kind.plural, parent, wanted.name)
        if identity in self._planned:
            twice = f"{kind.plural} {quoted(wanted.name)}"
            raise ServerError(f"{wanted.where}: expected each resource once, got {twice} a second time")
        self._planned.add(identity)
        current = await self._current(wanted, kind, parent)
        if current is None:
            return PlanStep(wanted=wanted, plural=kind.plural, action=PlanAction.CREATE, parent=parent)
        document = current.document
        if document.is_deleting:
            raise ServerError(f"{wanted.where}: {current.title} is being deleted")
        change = _change(current, wanted)
        action = PlanAction.CHANGE if change else PlanAction.NONE
        return PlanStep(wanted=wanted, plural=kind.plural, action=action, current=current, patch=change)

    async def _kind(self, wanted: Manifest) -> KindRules:
        kinds = await self._fleet.kinds()
        for kind in kinds:
            if wanted.plural in ("", kind.plural) and wanted.kind in ("", kind.kind):
                return kind
        field, given = ("plural", wanted.plural) if wanted.plural else ("kind", wanted.kind)
        known = [kind.plural if wanted.plural else kind.kind for kind in kinds]
        if given in known:
            raise ServerError(f'{wanted.where}: kind: expected the kind of {given}, got "{wanted.kind}"')
        near = closest_match(given, known)
        meant = f" Did you mean {near}?" if near else ""
        raise ServerError(
            f"{wanted.where}: {field}: the server has no {quoted(given)}.{meant} It has {', '.join(known)}"
        )

    async def _parent(self, wanted: Manifest, kind: KindRules, before: Sequence[PlanStep]) -> str | int | None:
        if not kind.parent:
            if wanted.parent:
                raise ServerError(f"{wanted.where}: parent: expected none: {kind.plural} belong to nothing")
            return None
        if not wanted.parent:
            raise ServerError(
                f"{wanted.where}: parent: required, but missing; {kind.plural} belong to {kind.parent}"
            )
        for number, step in enumerate(before):
            if step.plural == kind.parent and wanted.parent in (step.wanted.name, step.wanted.id):
                return number if step.current is None else step.current.document.id
        found = await self._find(wanted.parent)
        if found is not None and found.plural == kind.parent:
            return found.document.id
        ids = (await self._named(kind.parent, "")).get(wanted.parent, [])
        if len(ids) == 1:
            return ids[0]
        who = f"several of the {kind.parent} have" if ids else f"none of the {kind.parent} has"
        what = "name; the id tells them apart" if ids else "id or name"
        raise ServerError(f"{wanted.where}: parent: {who} {quoted(wanted.parent)} as {what}")

    async def _current(
        self, wanted: Manifest, kind: KindRules, parent: str | int | None
    ) -> FetchedDocument | None:
        if wanted.id:
            found = await self._find(wanted.id)
            if found is not None and (found.plural, found.document.name) != (kind.plural, wanted.name):
                raise ServerError(
                    f"{wanted.where}: id: expected {kind.plural} with the name {quoted(wanted.name)}, "
                    f"got {found.plural} with the name {quoted(found.document.name)}"
                )
            return found
        if isinstance(parent, int):
            return None
        ids = (await self._named(kind.plural, parent or "")).get(wanted.name, [])
        return await self._fleet.get(kind.plural, ids[0]) if ids else None

    async def _find(self, resource_id: str) -> FetchedDocument | None:
        try:
            return await self._fleet.find(resource_id)
        except RequestRejected as refused:
            if is_missing(refused):
                return None
            raise

    async def _named(self, plural: str, parent: str) -> Existing:
        if (plural, parent) not in self._existing:
            found: Existing = {}
            async for item in self._fleet.walk(plural, {"fields": "name"}, parent=parent):
                named = read(item, _Named)
                found.setdefault(named.name, []).append(named.id)
            self._existing[plural, parent] = found
        return self._existing[plural, parent]


class _Named(msgspec.Struct):
    id: str
    name: str


def _change(current: FetchedDocument, wanted: Manifest) -> dict[str, Json]:
    """The merge patch for what differs, of what the document mentions."""
    found: dict[str, Json] = {}
    labels, spec = as_is(current)
    if wanted.labels is not None and (changed := difference.patch(labels, dict(wanted.labels))):
        found["labels"] = changed
    if wanted.spec is not None and (changed := difference.patch(spec, wanted.spec)):
        found["spec"] = changed
    return found


def as_is(current: FetchedDocument) -> tuple[dict[str, Json], dict[str, Json]]:
    """Labels and spec of a resource."""
    spec: Json = msgspec.json.decode(current.document.spec)
    return dict(current.document.labels), spec if isinstance(spec, dict) else {}
