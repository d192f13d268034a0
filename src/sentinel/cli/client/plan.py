"""The plan of `sentinel apply`: what to create and change so that resources match files.

The plan is complete before anything is written. A resource is found by its id, or by its name within its kind and
parent. A key that is not in the file's spec or labels is removed from the resource; a file without spec or labels
leaves them unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from sentinel.cli.client import diff, names
from sentinel.cli.client.fleet import FetchedDocument, FleetClient, decode
from sentinel.cli.client.manifest import Manifest
from sentinel.cli.client.names import AmbiguousName
from sentinel.core.fleet.documents import KindRules
from sentinel.core.json import Json
from sentinel.drivers.rest.errors import ServerError
from sentinel.runtime.settings.report import closest_match, quoted

_PARENT = "owner_references.id"
"""The parent's field, which a file may also call `parent`."""


class PlanAction(StrEnum):
    """The change to a resource.

    `NONE` is in the plan so that its output accounts for every file.
    """

    CREATE = "create"
    CHANGE = "change"
    NONE = "none"


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one resource.

    `parent` is an id, or the index of the step that creates it. `current` is None if the resource will be created.
    """

    wanted: Manifest
    plural: str
    action: PlanAction
    parent: str | int | None = None
    current: FetchedDocument | None = None
    patch: dict[str, Json] = {}

    @property
    def title(self) -> str:
        return self.current.title if self.current else f"{self.plural}/{self.wanted.name}"


class Planner:
    """A planner for one server. It reads each list once, however many manifests need it."""

    def __init__(self, fleet: FleetClient) -> None:
        self._fleet = fleet
        self._ids: dict[tuple[str, str], dict[str, list[str]]] = {}
        """The ids of existing resources by their names, by plural and parent."""
        self._parents: dict[tuple[str, str], str] = {}
        """The ids of parents by plural and by their ids or names in files."""
        self._planned: set[tuple[str, str | int | None, str]] = set()

    async def step(self, wanted: Manifest, earlier: Sequence[PlanStep]) -> PlanStep:
        """Plan one resource, given the steps planned earlier; raises `ServerError`."""
        kind = await self._kind(wanted)
        parent = await self._parent(wanted, kind, earlier)
        identity = (kind.plural, parent, wanted.name)
        if identity in self._planned:
            duplicate = f"{kind.plural} {quoted(wanted.name)}"
            raise _error(wanted, "name", f"expected each resource once, got {duplicate} a second time")
        self._planned.add(identity)
        current = await self._current(wanted, kind, parent)
        if current is None:
            return PlanStep(wanted=wanted, plural=kind.plural, action=PlanAction.CREATE, parent=parent)
        if current.document.is_deleting:
            raise _error(wanted, "name", f"{current.title} is being deleted")
        patch = _make_patch(current, wanted)
        action = PlanAction.CHANGE if patch else PlanAction.NONE
        return PlanStep(wanted=wanted, plural=kind.plural, action=action, current=current, patch=patch)

    async def _kind(self, wanted: Manifest) -> KindRules:
        kinds = await self._fleet.kinds()
        for kind in kinds:
            if wanted.plural in ("", kind.plural) and wanted.kind in ("", kind.kind):
                return kind
        field, given = ("plural", wanted.plural) if wanted.plural else ("kind", wanted.kind)
        known = [kind.plural if wanted.plural else kind.kind for kind in kinds]
        if given in known:
            raise _error(wanted, "kind", f"expected the kind of {given}, got {quoted(wanted.kind)}")
        suggestion = closest_match(given, known)
        did_you_mean = f" Did you mean {suggestion}?" if suggestion else ""
        message = f"the server has no {quoted(given)}.{did_you_mean} It has {', '.join(known)}"
        raise _error(wanted, field, message)

    async def _parent(self, wanted: Manifest, kind: KindRules, earlier: Sequence[PlanStep]) -> str | int | None:
        if not kind.parent:
            if wanted.parent:
                raise _error(wanted, _PARENT, f"expected none, because {kind.plural} have no parent")
            return None
        if not wanted.parent:
            raise _error(wanted, "parent", f"required, but missing; {kind.plural} belong to {kind.parent}")
        for index, step in enumerate(earlier):
            if step.plural == kind.parent and wanted.parent in (step.wanted.name, step.wanted.id):
                return index if step.current is None else step.current.document.id
        reference = (kind.parent, wanted.parent)
        if reference not in self._parents:
            try:
                parent = await names.resolve(self._fleet, wanted.parent, plural=kind.parent)
            except AmbiguousName as error:
                message = str(wanted.problem(_PARENT, str(error)))
                raise AmbiguousName(message, error.candidates) from error
            except names.UnknownName as error:
                raise _error(wanted, _PARENT, str(error)) from error
            self._parents[reference] = parent.document.id
        return self._parents[reference]

    async def _current(
        self, wanted: Manifest, kind: KindRules, parent: str | int | None
    ) -> FetchedDocument | None:
        if wanted.id:
            found = await self._fleet.find_or_none(wanted.id)
            if found is not None and (found.plural, found.document.name) != (kind.plural, wanted.name):
                raise _error(
                    wanted,
                    "id",
                    f"expected {kind.plural} with the name {quoted(wanted.name)}, "
                    f"got {found.plural} with the name {quoted(found.document.name)}",
                )
            return found
        if isinstance(parent, int):
            return None
        ids = (await self._ids_by_name(kind.plural, parent or "")).get(wanted.name, [])
        return await self._fleet.get(kind.plural, ids[0]) if ids else None

    async def _ids_by_name(self, plural: str, parent: str) -> dict[str, list[str]]:
        if (plural, parent) not in self._ids:
            ids: dict[str, list[str]] = {}
            async for item in self._fleet.list_all(plural, {"fields": "name"}, parent=parent):
                named = decode(item, _Named)
                ids.setdefault(named.name, []).append(named.id)
            self._ids[plural, parent] = ids
        return self._ids[plural, parent]


def _error(wanted: Manifest, field: str, message: str) -> ServerError:
    return ServerError(str(wanted.problem(field, message)))


class _Named(msgspec.Struct):
    id: str
    name: str


def _make_patch(current: FetchedDocument, wanted: Manifest) -> dict[str, Json]:
    patch: dict[str, Json] = {}
    labels, spec = labels_and_spec(current)
    if wanted.labels is not None and (changed := diff.make_patch(labels, dict(wanted.labels))):
        patch["labels"] = changed
    if wanted.spec is not None and (changed := diff.make_patch(spec, wanted.spec)):
        patch["spec"] = changed
    return patch


def labels_and_spec(current: FetchedDocument) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the labels and the decoded spec of a resource."""
    spec: Json = msgspec.json.decode(current.document.spec)
    return dict(current.document.labels), spec if isinstance(spec, dict) else {}
