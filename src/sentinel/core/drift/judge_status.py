"""Recognizes updates of a status without judging the whole object.

Nearly all events of a StatefulSet are updates of its status. Such an event changes the status, the resource
version, and the entry of its writer in `managedFields`, and nothing else. That can be told by comparing two
hashes, at a tenth of the cost of a judgement, and the judgement would say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from sentinel.core.drift import managed_fields, paths
from sentinel.core.drift.fingerprint import Fingerprint, metadata_text
from sentinel.core.drift.judgement import Change, ChangeOp, Judgement, Reason
from sentinel.core.drift.object_fields import digest_of
from sentinel.core.json import Json
from sentinel.core.kube import objects

_STATUS = "status"
_encode = msgspec.json.encode


class StatusSummary(msgspec.Struct, frozen=True):
    """The hashes of an object with a status."""

    status: str
    """The hash of the status, as in a fingerprint."""
    others: bytes
    """The hash of everything that an update of the status leaves alone."""


def summarize(document: Mapping[str, Json]) -> StatusSummary | None:
    """Return the hashes of an object, or None if it has no status."""
    status, metadata = document.get(_STATUS), document.get("metadata")
    if status is None or not isinstance(metadata, dict):
        return None
    others = {name: value for name, value in document.items() if name not in (_STATUS, "metadata")}
    kept = {name: value for name, value in metadata.items() if name not in ("managedFields", "resourceVersion")}
    writers = [entry for entry in _entries(document) if not _is_about_status(entry)]
    return StatusSummary(digest_of(status), _digest([others, kept, writers]))


def judge_status_update(
    before: StatusSummary | None,
    after: StatusSummary | None,
    known: Fingerprint,
    document: Mapping[str, Json],
) -> tuple[Judgement, Fingerprint] | None:
    """Return the judgement on an update of a status and the new fingerprint, or None for any other change.

    `known` is the fingerprint before, `document` the object after. The judgement does not name the writer: of
    ignored events, only the reason is reported.
    """
    if before is None or after is None or before.others != after.others or before.status == after.status:
        return None
    judgement = Judgement(
        reason=Reason.STATUS,
        kind=known.kind,
        namespace=known.namespace,
        name=known.name,
        rule=Reason.STATUS.value,
        changes=(Change(paths.STATUS, ChangeOp.CHANGE),),
    )
    # The writers of the status must not look like writers of the next change.
    others = [entry for entry in known.entries if entry.subresource != _STATUS]
    written = [each for each in _entries(document) if _is_about_status(each)]
    entries = (*others, *managed_fields.read({"managedFields": written}).entries)
    return judgement, msgspec.structs.replace(
        known,
        status=after.status,
        entries=entries,
        resource_version=metadata_text(objects.read_metadata(document), "resourceVersion"),
    )


def _entries(document: Mapping[str, Json]) -> list[Json]:
    metadata = document.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
    return entries if isinstance(entries, list) else []


def _is_about_status(entry: Json) -> bool:
    return isinstance(entry, dict) and entry.get("subresource") == _STATUS


def _digest(value: Json) -> bytes:
    return blake2b(_encode(value), digest_size=16).digest()
