"""The judgement on one change of an object: whether it is drift, why, what changed, and who did it.

It is a value that the log, metrics, Events, the webhook and `sentinel drift explain` render.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from sentinel.core.json import Json
from sentinel.core.times import timestamp

ANNOTATION_RULE: Final = "annotation"
"""The rule if the object's own annotation opts it out."""


class Reason(StrEnum):
    """Why a change is drift or is not. A closed set: it is a metric label and part of the public surface."""

    LABEL_LOST = "label_lost"
    """A label by which objects are selected was removed or got another value."""
    OWNED_FIELD_CHANGED = "owned_field_changed"
    OWNED_FIELD_REMOVED = "owned_field_removed"
    UNOWNED_ADDED = "unowned_added"
    """Another manager added a field, or changed a default that nobody holds."""
    DELETED = "deleted"
    FINGERPRINT_MISMATCH = "fingerprint_mismatch"
    """The object differs from the fingerprint that the operator attested, when first seen."""

    OPERATOR_WRITE = "operator_write"
    STATUS = "status"
    BOOKKEEPING = "bookkeeping"
    """Only fields changed that the API server maintains, such as `resourceVersion`."""
    UNOWNED = "unowned"
    """A change of something that is not the operator's and that the rules do not count."""
    UNATTESTED = "unattested"
    """First seen without a fingerprint that is known to be the operator's, so nothing can be said about earlier
    changes."""
    IGNORED = "ignored"
    UNCHANGED = "unchanged"

    @property
    def is_drift(self) -> bool:
        return self in _DRIFT


_DRIFT: Final = frozenset(
    {
        Reason.LABEL_LOST,
        Reason.OWNED_FIELD_CHANGED,
        Reason.OWNED_FIELD_REMOVED,
        Reason.UNOWNED_ADDED,
        Reason.DELETED,
        Reason.FINGERPRINT_MISMATCH,
    }
)


class ChangeOp(StrEnum):
    """What happened to a field."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


class ValueSummary(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a value: enough to compare it and to show it, never a long or confidential text."""

    digest: str
    """A hash in hexadecimal digits. Equal values have equal hashes."""
    size: int
    """The bytes of a text, or of any other value as JSON."""
    text: str | None = None
    """The value as JSON, if it is short and not confidential."""

    def __str__(self) -> str:
        return f"{self.size} bytes, hash {self.digest}" if self.text is None else self.text


class Change(msgspec.Struct, frozen=True):
    """One changed field. An added or removed subtree is one change at its root."""

    path: str
    """A JSON pointer, with members of keyed lists by their key: `/spec/ports/port=8200,protocol=TCP`. Empty for
    the whole object."""
    op: ChangeOp
    before: ValueSummary | None = None
    """None if the field did not exist, or if its value is not known."""
    after: ValueSummary | None = None


class Actor(msgspec.Struct, frozen=True):
    """Who changed an object, as its `managedFields` say. Every member is None where Kubernetes keeps none."""

    manager: str | None = None
    operation: str | None = None
    """`Apply` or `Update`."""
    time: datetime | None = None
    subresource: str | None = None
    """Such as `scale`; None for the object itself."""

    def __str__(self) -> str:
        if self.manager is None:
            return "unknown"
        return self.manager if self.operation is None else f"{self.manager} ({self.operation})"

    def encode(self) -> dict[str, Json]:
        """Return the actor as JSON, for `explain` and for the webhook."""
        time = None if self.time is None else timestamp(self.time)
        return {"manager": self.manager, "operation": self.operation, "time": time}


UNKNOWN_ACTOR: Final = Actor()
"""A removal or deletion: Kubernetes does not record who did it."""


class Judgement(msgspec.Struct, frozen=True):
    """Whether a change is drift, and everything that is known about it."""

    reason: Reason
    kind: str
    namespace: str
    """Empty for kinds without namespaces."""
    name: str
    rule: str
    """What decided: `ignore[N]`, `annotation`, or the reason."""
    changes: tuple[Change, ...] = ()
    """The changes that the reason is about, sorted by path. Drift does not list changes by the operator."""
    actor: Actor = UNKNOWN_ACTOR

    @property
    def is_drift(self) -> bool:
        return self.reason.is_drift

    @property
    def added(self) -> int:
        return self._count(ChangeOp.ADD)

    @property
    def changed(self) -> int:
        return self._count(ChangeOp.CHANGE)

    @property
    def removed(self) -> int:
        return self._count(ChangeOp.REMOVE)

    @property
    def resource(self) -> str:
        """The object as the trigger names it: `StatefulSet/namespace/name`."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def summary(self) -> str:
        """One line, such as `StatefulSet/ns/name: +1 ~2 -0 by kubectl-edit (Update)`."""
        return f"{self.resource}: +{self.added} ~{self.changed} -{self.removed} by {self.actor}"

    def encode(self) -> dict[str, Json]:
        """Return the judgement as `sentinel drift explain --output json` prints it."""
        return {
            "drift": self.is_drift,
            "reason": self.reason.value,
            "rule": self.rule,
            "changes": [{"path": each.path, "op": each.op.value} for each in self.changes],
            "actor": self.actor.encode(),
        }

    def _count(self, op: ChangeOp) -> int:
        return sum(each.op is op for each in self.changes)
