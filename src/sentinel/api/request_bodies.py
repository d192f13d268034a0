"""What clients send to make or change a resource, and what of it can be taken.

Limits are here and in `web.body`: the first about a resource, the second about any JSON. Both name the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sentinel.core import labels as label_rules
from sentinel.core import merge_patch
from sentinel.core.fleet.documents import KindRules, Owner, ResourceDocument
from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern
from sentinel.web.errors import Invalid
from sentinel.web.problem import FieldError, shown

LARGEST_SPEC = 512 * 1024
LONGEST_NAME = 255
LONGEST_REASON = 1024

_ID = re.compile(segment_pattern(MAX_ID_LENGTH))


class OwnerReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which resource a new one belongs to; kind and href may come along and must then be right."""

    id: str
    kind: str | UnsetType = UNSET
    href: str | UnsetType = UNSET


class NewResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a creation."""

    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    """Unique within kind and parent."""
    spec: dict[str, Any] = {}
    """What the owner asks for."""
    labels: dict[str, str] = {}
    kind: str | UnsetType = UNSET
    """May be left out; otherwise it must be the kind of the path."""
    id: Annotated[str, Meta(pattern=f"^{_ID.pattern}$")] | UnsetType = UNSET
    """Made by the server where it is left out. Unique over all kinds."""
    owner_references: OwnerReference | UnsetType = UNSET
    """The parent, where the path does not name it."""


class ResourcePatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A JSON merge patch. What cannot be changed may be sent along as it is."""

    spec: dict[str, Any] | UnsetType = UNSET
    labels: dict[str, str | None] | None | UnsetType = UNSET
    """A null removes a label; null for all of them removes all."""
    id: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done that cannot be undone."""

    reason: Annotated[str, Meta(min_length=1, max_length=LONGEST_REASON)]


class ResourceDraft(msgspec.Struct, frozen=True):
    """A new resource that can be taken."""

    name: str
    spec: msgspec.Raw
    labels: Mapping[str, str]
    id: str
    """Empty where the server is to make one."""
    reference: OwnerReference | UnsetType = UNSET
    """The parent, as far as the body names it."""

    @property
    def owner(self) -> str:
        """The id of the parent that the body names, or nothing."""
        return self.reference.id if isinstance(self.reference, OwnerReference) else ""

    def check_owner(self, owner: Owner) -> None:
        """Raises `Invalid` where the body says something of its owner that is not so."""
        if not isinstance(self.reference, OwnerReference):
            return
        errors = [
            FieldError(f"owner_references.{field}", f"expected {shown(right)}, or nothing")
            for field, given, right in (
                ("kind", self.reference.kind, owner.kind),
                ("href", self.reference.href, owner.href),
            )
            if given is not UNSET and given != right
        ]
        if errors:
            raise Invalid(tuple(errors))


def draft(body: NewResource, kind: KindRules, *, parent: str | None) -> ResourceDraft:
    """Reads a creation below `parent`, or a flat one; raises `Invalid` with everything that is wrong."""
    errors = [*_name_errors(body.name), *_label_errors(body.labels)]
    if body.kind is not UNSET and body.kind != kind.kind:
        errors.append(FieldError("kind", f"expected {kind.kind}, as the path says, got {shown(body.kind)}"))
    if body.id is not UNSET and _ID.fullmatch(body.id) is None:
        errors.append(FieldError("id", "expected one safe segment of a URL: letters, digits, - . _ ~"))
    errors += _owner_errors(body.owner_references, kind, parent)
    spec = merge_patch.canonical(body.spec)
    errors += _spec_errors(spec)
    if errors:
        raise Invalid(tuple(errors))
    return ResourceDraft(body.name, msgspec.Raw(spec), body.labels, body.id or "", body.owner_references)


def patched(document: ResourceDocument, patch: ResourcePatch) -> tuple[Mapping[str, str], msgspec.Raw]:
    """Labels and spec after a merge patch; raises `Invalid` with everything that is wrong."""
    errors = [
        FieldError(field, f"expected {shown(current)}: it cannot be changed")
        for field, given, current in (
            ("id", patch.id, document.id),
            ("kind", patch.kind, document.kind),
            ("name", patch.name, document.name),
        )
        if given is not UNSET and given != current
    ]
    labels = document.labels
    if patch.labels is None:
        labels = {}
    elif patch.labels is not UNSET:
        merged: dict[str, str | None] = {**labels, **patch.labels}
        labels = {key: value for key, value in merged.items() if value is not None}
        errors += _label_errors(labels)
    spec = bytes(document.spec)
    if patch.spec is not UNSET:
        spec = merge_patch.canonical(merge_patch.apply(msgspec.json.decode(spec), patch.spec))
        errors += _spec_errors(spec)
    if errors:
        raise Invalid(tuple(errors))
    return labels, msgspec.Raw(spec)


def _name_errors(name: str) -> list[FieldError]:
    if name.isprintable() and name == name.strip() and name:
        return []
    return [FieldError("name", "expected printable text without spaces around it")]


def _label_errors(labels: Mapping[str, str]) -> list[FieldError]:
    return [FieldError(field, message) for field, message in label_rules.check_labels(labels)]


def _spec_errors(spec: bytes) -> list[FieldError]:
    if len(spec) <= LARGEST_SPEC:
        return []
    return [FieldError("spec", f"expected at most {LARGEST_SPEC} bytes, got {len(spec)}")]


def _owner_errors(reference: OwnerReference | UnsetType, kind: KindRules, parent: str | None) -> list[FieldError]:
    if not kind.parent:
        if reference is UNSET:
            return []
        return [FieldError("owner_references", f"expected none: {kind.plural} belong to nothing")]
    if reference is UNSET:
        if parent is None:
            return [
                FieldError(
                    "owner_references.id", f"required, but missing; expected the id of one of {kind.parent}"
                )
            ]
        return []
    if parent is not None and reference.id != parent:
        return [FieldError("owner_references.id", f"expected {shown(parent)}, as the path says")]
    return []
