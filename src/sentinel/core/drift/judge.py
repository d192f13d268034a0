"""Judges whether a change of an object is drift: what another actor does to what the operator owns, or adds.

A judgement rests on who holds a field now, not on who wrote last: an event may contain the writes of several,
times have one second, and removals leave no trace. The operator wrote a new value if it holds the field now. It
removed a field that it owned if it attests other fields than before, or, for an operator that attests nothing, if
it wrote and nobody else did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, assert_never

import msgspec

from sentinel.core.drift import object_fields, paths
from sentinel.core.drift.findings import Finding, conclude, merge
from sentinel.core.drift.fingerprint import Fingerprint, fingerprint
from sentinel.core.drift.judge_initial import judge_initial
from sentinel.core.drift.judgement import ChangeOp, Judgement, Reason
from sentinel.core.drift.managed_fields import FieldHolders, ManagedEntry, Writers
from sentinel.core.drift.mismatches import mismatches
from sentinel.core.drift.paths import PathSet
from sentinel.core.drift.rules import Rules, Unowned
from sentinel.core.json import Json


def judge(
    before: Fingerprint | None, after: Mapping[str, Json] | None, rules: Rules
) -> tuple[Judgement, Fingerprint | None]:
    """Return the judgement on an object, and its fingerprint for the next one.

    `before` is None for an object that is seen for the first time: it is judged against its attestation. `after`
    is None for one that was deleted. An object that no longer matches the selector is not deleted: pass what the
    API server returns for it now. Raises `Malformed` if `after` has no kind or no name.
    """
    if after is None:
        if before is None:
            raise TypeError("expected an object before or after, got neither")
        return _judge_deletion(before, rules), None
    now = fingerprint(after, rules, earlier=before)
    if before is None:
        return judge_initial(now, after, rules), now
    if before.uid and now.uid and before.uid != now.uid:
        # Deleted and created again. If the operator did not do it, its object is gone.
        if not FieldHolders(now.entries, rules.managers).operator:
            return _judge_deletion(before, rules), now
        return judge_initial(now, after, rules), now
    return _Comparison(before, now, after, rules).judge()


def _judge_deletion(before: Fingerprint, rules: Rules) -> Judgement:
    deletion = Finding("", ChangeOp.REMOVE, Reason.DELETED)
    return conclude(before, [deletion], rules, is_opted_out=before.is_opted_out)


class _Comparison:
    """The judgement on two versions of one object."""

    def __init__(
        self, before: Fingerprint, after: Fingerprint, document: Mapping[str, Json], rules: Rules
    ) -> None:
        self._before = before
        self._after = after
        self._document = document
        self._rules = rules
        self._held_before = FieldHolders(before.entries, rules.managers)
        self._held = FieldHolders(after.entries, rules.managers)
        self._held_ever = FieldHolders((*before.entries, *after.entries), rules.managers)
        self._writers = Writers(before.entries, after.entries, rules.managers)
        self._differences = object_fields.compare(before.nodes, after.nodes, is_atomic=self._held_ever.is_atomic)
        self._labels = frozenset(paths.child(paths.LABELS, label) for label in rules.managed_labels)
        self._own_annotations = paths.child(paths.ANNOTATIONS, rules.annotations.prefix)
        attested = before.attestation
        # Without entries nothing says that the operator wrote the annotation: any client can remove them all.
        self._has_new_attestation = (
            after.attestation is not None
            and not self._held.is_empty
            and (attested is None or attested.text != after.attestation.text)
        )
        self._has_operator_written = self._find_operator_write()

    def judge(self) -> tuple[Judgement, Fingerprint]:
        findings = [*self._changed(), *self._added(), *self._removed()]
        findings += self._undone(findings)
        otherwise, last_writer = Reason.UNCHANGED, None
        if self._before.status != self._after.status:
            status = Finding(paths.STATUS, ChangeOp.CHANGE, Reason.STATUS, self._writers.latest(self._writers.all))
            findings = findings or [status]
        elif not findings and self._before.bookkeeping != self._after.bookkeeping:
            # Only here: a change without a trace must not be attributed to someone who wrote something else.
            otherwise, last_writer = Reason.BOOKKEEPING, self._writers.latest(self._writers.all)
        judgement = conclude(
            self._after,
            findings,
            self._rules,
            is_opted_out=self._before.is_opted_out,
            otherwise=otherwise,
            before=self._before.nodes,
            after=self._after.nodes,
            last_writer=last_writer,
        )
        return judgement, msgspec.structs.replace(self._after, owned=self._still_owned(findings))

    def _changed(self) -> Iterator[Finding]:
        for path in self._differences.changed:
            reason, entry = self._judge_changed(path)
            yield Finding(path, ChangeOp.CHANGE, reason, entry)

    def _judge_changed(self, path: str) -> tuple[Reason, ManagedEntry | None]:
        operators = self._writing_operators(path)
        if operators:
            return Reason.OPERATOR_WRITE, self._writers.latest(operators)
        others = self._held.others(path)
        other = self._writers.latest(others) or self._writers.only_other
        is_owned = self._is_owned(path)
        if is_owned and not others and self._is_released([path]):
            return Reason.OPERATOR_WRITE, self._writers.latest(self._writers.operator)
        if path in self._labels:
            return Reason.LABEL_LOST, other
        if is_owned:
            return Reason.OWNED_FIELD_CHANGED, other
        if path.startswith(self._own_annotations):
            return self._reason_for_addition(path), other
        if self._held_before.others(path):
            return Reason.UNOWNED, other
        return self._judge_addition(path, others)

    def _added(self) -> list[Finding]:
        """Judge each added field, and join those of a subtree."""
        findings: dict[str, Finding] = {}
        for path in self._differences.added:
            operators, others = self._writing_operators(path), self._held.others(path)
            above = findings.get(paths.parent(path))
            if operators:
                verdict: tuple[Reason, ManagedEntry | None] = (
                    Reason.OPERATOR_WRITE,
                    self._writers.latest(operators),
                )
            elif others and path in self._before.owned:
                verdict = Reason.OWNED_FIELD_CHANGED, self._writers.latest(others)
            elif others or above is None or (self._is_unheld_content(path) and not above.reason.is_drift):
                verdict = self._judge_addition(path, others)
            else:  # a default inside of what someone added
                verdict = above.reason, above.entry
            findings[path] = Finding(path, ChangeOp.ADD, *verdict)
        return merge(findings)

    def _judge_addition(self, path: str, others: list[ManagedEntry]) -> tuple[Reason, ManagedEntry | None]:
        """Judge a field that is new, or a default that changed. `others` hold it, the operator does not."""
        if others:
            return self._reason_for_addition(path), self._writers.latest(others)
        # Nobody holds it: the API server set a default, as a consequence of someone's write or after an upgrade.
        is_content = self._is_unheld_content(path)
        if self._has_operator_written and not is_content:
            return Reason.OPERATOR_WRITE, self._writers.latest(self._writers.operator)
        is_changed = path in self._before.nodes
        is_unrecorded = self._has_unrecorded_write and not object_fields.is_empty(self._after.nodes, path)
        if is_changed or is_content or self._writers.others or is_unrecorded:
            return self._reason_for_addition(path), self._writers.only_other
        return Reason.UNOWNED, None

    def _is_unheld_content(self, path: str) -> bool:
        """Whether a new field cannot be a default, although nobody holds it or anything in it."""
        return object_fields.is_content(self._after.nodes, path) and not self._held.has_parts(path)

    @property
    def _has_unrecorded_write(self) -> bool:
        """Whether someone wrote, but no entry shows who.

        A default that comes with a new release of the API server is there without a write.
        """
        version = self._after.resource_version
        return not self._writers.all and (not version or version != self._before.resource_version)

    def _reason_for_addition(self, path: str) -> Reason:
        """Return the reason for what another manager adds at a path: drift if the rules count it."""
        is_metadata = paths.is_below(path, "/metadata")
        match self._rules.unowned:
            case Unowned.NONE:
                counts = False
            case Unowned.SPEC:
                counts = not is_metadata or path.startswith(self._own_annotations)
            case Unowned.ALL:
                counts = True
            case _:
                assert_never(self._rules.unowned)
        return Reason.UNOWNED_ADDED if counts else Reason.UNOWNED

    def _removed(self) -> Iterator[Finding]:
        """Judge each removed subtree as one."""
        subtrees: dict[str, list[str]] = {}
        roots: dict[str, str] = {}
        for path in self._differences.removed:
            root = roots[path] = roots.get(paths.parent(path), path)
            subtrees.setdefault(root, []).append(path)
        for root, fields in subtrees.items():
            reason, entry = self._judge_removed(fields)
            leaves = tuple(path for path in fields[1:] if not self._before.nodes[path].is_container)
            yield Finding(root, ChangeOp.REMOVE, reason, entry, leaves)

    def _judge_removed(self, fields: Sequence[str]) -> tuple[Reason, ManagedEntry | None]:
        """Judge the fields of a removed subtree."""
        owned = [path for path in fields if self._held_before.covers(self._before.owned, path)]
        is_label = not self._labels.isdisjoint(fields)
        if self._is_released(owned) if owned else self._has_operator_written and not is_label:
            return Reason.OPERATOR_WRITE, self._writers.latest(self._writers.operator)
        reason = Reason.OWNED_FIELD_REMOVED if owned else Reason.UNOWNED
        return Reason.LABEL_LOST if is_label else reason, self._writers.only_other

    def _undone(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Judge what another manager changed in the same event in which the operator attested it.

        The comparison does not show it: the operator may have added the field, and the other removed it again.
        """
        drifted = PathSet(each.path for each in findings if each.reason.is_drift)
        for path, op in self._mismatches.items():
            if not drifted.overlaps(path):
                entry = self._writers.latest(self._held.others(path)) or self._writers.only_other
                yield Finding(path, op, self._reason_for_undone(path, op), entry)

    def _reason_for_undone(self, path: str, op: ChangeOp) -> Reason:
        if op is ChangeOp.CHANGE:
            return Reason.LABEL_LOST if path in self._labels else Reason.OWNED_FIELD_CHANGED
        is_label = any(label == path or paths.is_below(label, path) for label in self._labels)
        return Reason.LABEL_LOST if is_label else Reason.OWNED_FIELD_REMOVED

    @cached_property
    def _mismatches(self) -> Mapping[str, ChangeOp]:
        """The fields that are not as the operator attests them in this event. It costs a hash of each value."""
        attestation = self._after.attestation if self._has_new_attestation else None
        if attestation is None:
            return {}
        return mismatches(self._after, attestation, self._document, self._rules)

    @cached_property
    def _wanted(self) -> PathSet:
        """The fields that the operator attests, now or still."""
        return PathSet(() if self._after.attestation is None else self._after.attestation.owned)

    def _is_released(self, owned: Sequence[str]) -> bool:
        """Whether the operator itself gave up fields that it owned and that it does not hold any more."""
        now = self._after.attestation
        if now is not None and now.fields is None:
            return self._has_new_attestation and not self._mismatches
        if any(map(self._wanted.overlaps, owned)):
            return False
        return self._has_new_attestation or (self._has_operator_written and not self._writers.others)

    def _find_operator_write(self) -> bool:
        """Whether the operator wrote: by its entries, or because it holds a value that is new."""
        new = (*self._differences.changed, *self._differences.added)
        return bool(self._writers.operator) or any(map(self._writing_operators, new))

    def _writing_operators(self, path: str) -> list[ManagedEntry]:
        """Return the operator's entries that hold a new value.

        Empty if only another manager of the field has written. An API server takes a field from those whose value
        is changed, but a client can edit entries to make the operator look like the writer.
        """
        operators = self._held.operators(path)
        if path in self._after.folded:
            return self._writing_operators_of_folded(path, operators)
        if not operators or self._has_new_attestation or any(entry in self._writers.all for entry in operators):
            return operators
        return [] if any(entry in self._writers.all for entry in self._held.others(path)) else operators

    def _writing_operators_of_folded(self, path: str, operators: list[ManagedEntry]) -> list[ManagedEntry]:
        """Return the operator's entries that hold new values in a map that is one value.

        Others may hold other keys of it. If one of them wrote, or if the operator lost keys, the change may not be
        the operator's alone.
        """
        if any(entry in self._writers.all for entry in self._held.others(path)):
            return []
        if self._has_new_attestation:
            return operators
        earlier = {entry.identity: entry.count(path) for entry in self._before.entries}
        return [entry for entry in operators if entry.count(path) >= earlier.get(entry.identity, 0)]

    def _still_owned(self, findings: Iterable[Finding]) -> frozenset[str]:
        """Return the paths that the next change is judged by.

        What another manager took or removed stays owned until the operator writes again.
        """
        if not self._has_operator_written:
            return self._after.owned | self._before.owned
        taken = PathSet(each.path for each in findings if each.reason in _TAKEN)
        return self._after.owned | set(filter(taken.overlaps, self._before.owned))

    def _is_owned(self, path: str) -> bool:
        """Whether the operator owned a field that changed, or a part of it."""
        owned = self._before.owned
        return self._held_before.covers(owned, path) or (
            self._before.nodes[path].is_container and any(paths.is_below(each, path) for each in owned)
        )


_TAKEN: Final = frozenset({Reason.LABEL_LOST, Reason.OWNED_FIELD_CHANGED, Reason.OWNED_FIELD_REMOVED})
