"""What is kept of an object between two events: hashes and paths, never whole values.

The next event is judged against it, so that a ConfigMap of 1 MiB costs a few hundred bytes. Data with thousands of
keys is folded into one value: then the whole is judged, and a change of it has the path `/data`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sentinel.core.drift import managed_fields, object_fields, paths
from sentinel.core.drift.attestation import Attestation, read_attestation
from sentinel.core.drift.keyed_lists import ListKeys
from sentinel.core.drift.managed_fields import FieldHolders, ManagedEntry
from sentinel.core.drift.object_fields import Node
from sentinel.core.drift.rules import Rules
from sentinel.core.json import Json, Malformed
from sentinel.core.kube import objects


class Fingerprint(msgspec.Struct, frozen=True):
    """An object as far as drift is concerned. Callers use the first four fields; the others are for `judge`."""

    kind: str
    namespace: str
    name: str
    is_opted_out: bool
    """Its annotation says that changes are ignored."""

    uid: str
    resource_version: str
    nodes: Mapping[str, Node]
    """The fields that count, by path."""
    entries: tuple[ManagedEntry, ...]
    """Who holds what."""
    lists: Mapping[str, ListKeys]
    """The lists that were ever seen to be keyed. Who showed it may be gone at the next event."""
    folded: frozenset[str]
    """The maps that are one value because they have, or had, too many keys."""
    owned: frozenset[str]
    """The paths that the operator holds, or that it held or attested when it last wrote."""
    attestation: Attestation | None
    """What the operator attested. None if it did not, or if another manager wrote the annotation."""
    has_foreign_attestation: bool
    """Another manager wrote the annotation in which the operator attests."""
    status: str
    """The hash of the status."""
    bookkeeping: str
    """The hash of what the API server maintains."""


def fingerprint(document: Mapping[str, Json], rules: Rules, *, earlier: Fingerprint | None = None) -> Fingerprint:
    """Return the fingerprint of an object. Raises `Malformed` if it has no kind or no name.

    `earlier` is that of an earlier version, which may have shown keyed lists.
    """
    folded = object_fields.large_maps(document) | (frozenset() if earlier is None else earlier.folded)
    return _fingerprint(document, rules, {} if earlier is None else earlier.lists, folded)


def unfolded(now: Fingerprint, document: Mapping[str, Json], rules: Rules) -> Fingerprint:
    """Return the fingerprint of the same object with all fields. It is large, so it is not to be kept."""
    return now if not now.folded else _fingerprint(document, rules, now.lists, frozenset())


def all_entries(now: Fingerprint, document: Mapping[str, Json]) -> tuple[ManagedEntry, ...]:
    """Return the entries of the same object with all fields. They are large, so they are not to be kept."""
    return now.entries if not now.folded else managed_fields.read(objects.read_metadata(document)).entries


def _fingerprint(
    document: Mapping[str, Json], rules: Rules, lists: Mapping[str, ListKeys], folded: frozenset[str]
) -> Fingerprint:
    metadata = objects.read_metadata(document)
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise Malformed("kind: expected a text such as StatefulSet, got none")
    managed = managed_fields.read(metadata, folded=folded)
    all_lists = {**lists, **managed.lists}
    holders = FieldHolders(managed.entries, rules.managers)
    annotations = metadata.get("annotations")
    texts = annotations if isinstance(annotations, dict) else {}
    attested = texts.get(rules.annotations.fingerprint)
    # kubectl prints objects without entries by default; then the writer is unknown.
    is_trusted = holders.is_empty or holders.has_operator(
        paths.child(paths.ANNOTATIONS, rules.annotations.fingerprint)
    )
    attestation = read_attestation(attested) if isinstance(attested, str) and is_trusted else None
    return Fingerprint(
        kind=kind,
        namespace=objects.namespace(document),
        name=objects.name(document),
        is_opted_out=texts.get(rules.annotations.ignore) == "true",
        uid=metadata_text(metadata, "uid"),
        resource_version=metadata_text(metadata, "resourceVersion"),
        nodes=object_fields.flatten(document, all_lists, folded),
        entries=managed.entries,
        lists=all_lists,
        folded=folded,
        owned=holders.operator if attestation is None else holders.operator | attestation.owned,
        attestation=attestation,
        has_foreign_attestation=attested is not None and not is_trusted,
        status=object_fields.digest_of(document.get("status")),
        bookkeeping=_digest([metadata.get(field) for field in object_fields.BOOKKEEPING]),
    )


def _digest(value: Json) -> str:
    """Return a hash that is compared in this process alone. `managedFields` may have very many fields."""
    try:
        return object_fields.digest(msgspec.json.encode(value, order="sorted"))
    except UnicodeEncodeError:  # half of a surrogate pair
        return object_fields.digest_of(value)


def metadata_text(metadata: Mapping[str, Json], field: str) -> str:
    """Return a text of an object's `metadata`, or an empty one if it is missing."""
    value = metadata.get(field)
    return value if isinstance(value, str) else ""
