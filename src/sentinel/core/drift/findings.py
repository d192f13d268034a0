"""Findings: what was found out about each change of an object, and the judgement that follows from all of them.

`conclude` applies the ignore rules, picks the reason, and names the actor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sentinel.core.drift import managed_fields, object_fields, paths
from sentinel.core.drift.fingerprint import Fingerprint
from sentinel.core.drift.judgement import ANNOTATION_RULE, Change, ChangeOp, Judgement, Reason
from sentinel.core.drift.managed_fields import ManagedEntry
from sentinel.core.drift.object_fields import Node
from sentinel.core.drift.rules import Glob, IgnoreRule, Rules

_DRIFT_ORDER: Final = (
    Reason.DELETED,
    Reason.FINGERPRINT_MISMATCH,
    Reason.LABEL_LOST,
    Reason.OWNED_FIELD_CHANGED,
    Reason.OWNED_FIELD_REMOVED,
    Reason.UNOWNED_ADDED,
)
"""Of several reasons, the first is named."""

_OTHER_ORDER: Final = (Reason.OPERATOR_WRITE, Reason.UNOWNED, Reason.STATUS)


class Finding(msgspec.Struct, frozen=True):
    """One change, with what was found out about it."""

    path: str
    op: ChangeOp
    reason: Reason
    entry: ManagedEntry | None = None
    """Who did it; None if that is unknown. Of several, the latest."""
    leaves: tuple[str, ...] = ()
    """The fields of an added or removed subtree."""
    parts: tuple[Finding, ...] = ()
    """What each manager did, if several added the subtree: a rule may ignore one of them."""


def merge(findings: dict[str, Finding]) -> list[Finding]:
    """Join the findings of each subtree into one at its root, unless they differ in reason.

    Findings are by path, those of containers before those of the fields in them.
    """
    below: dict[str, list[Finding]] = {}
    roots: list[Finding] = []
    for path, finding in reversed(findings.items()):
        inner = below.pop(path, None)
        joined = [finding] if inner is None else _joined(finding, inner)
        above = paths.parent(path)
        (below.setdefault(above, []) if above in findings else roots).extend(joined)
    return roots


def conclude(
    judged: Fingerprint,
    findings: Sequence[Finding],
    rules: Rules,
    *,
    is_opted_out: bool,
    otherwise: Reason = Reason.UNCHANGED,
    before: Mapping[str, Node] | None = None,
    after: Mapping[str, Node] | None = None,
    last_writer: ManagedEntry | None = None,
) -> Judgement:
    """Return the judgement on an object. `otherwise` is the reason if nothing was found, done by `last_writer`.

    `before` and `after` are the fields of both versions, for the values of changes.
    """

    def judgement(reason: Reason, about: Sequence[Finding], rule: str = "") -> Judgement:
        decisive = [each for each in about if each.reason is reason] or about
        named = managed_fields.latest([each.entry for each in decisive if each.entry is not None])
        return Judgement(
            reason=reason,
            kind=judged.kind,
            namespace=judged.namespace,
            name=judged.name,
            rule=rule or reason.value,
            changes=tuple(
                Change(
                    each.path,
                    each.op,
                    before=None if each.op is ChangeOp.ADD else object_fields.summarize(before or {}, each.path),
                    after=None if each.op is ChangeOp.REMOVE else object_fields.summarize(after or {}, each.path),
                )
                for each in sorted(about, key=lambda each: each.path)
            ),
            actor=managed_fields.actor(named or last_writer),
        )

    drift = [each for each in findings if each.reason.is_drift]
    if drift and is_opted_out:
        return judgement(Reason.IGNORED, drift, ANNOTATION_RULE)
    covered = [pair for each in drift for pair in _with_rules(each, judged, rules.ignore)]
    remaining = [each for each, rule in covered if rule is None]
    if remaining:
        return judgement(_first(_DRIFT_ORDER, remaining), remaining)
    if drift:
        lowest = min(rule for _, rule in covered if rule is not None)
        return judgement(Reason.IGNORED, drift, f"ignore[{lowest}]")
    return judgement(_first(_OTHER_ORDER, findings) if findings else otherwise, findings)


def _first(order: Sequence[Reason], findings: Sequence[Finding]) -> Reason:
    return next(reason for reason in order if any(each.reason is reason for each in findings))


def _with_rules(
    finding: Finding, judged: Fingerprint, ignore: Sequence[IgnoreRule]
) -> list[tuple[Finding, int | None]]:
    """Return a finding with the index of the rule that covers it. It is split if only its parts are covered."""
    rule = _covering_rule(finding, judged, ignore)
    parts = [(each, _covering_rule(each, judged, ignore)) for each in finding.parts]
    if rule is None and any(each is not None for _, each in parts):
        return parts
    return [(finding, rule)]


def _covering_rule(finding: Finding, judged: Fingerprint, ignore: Sequence[IgnoreRule]) -> int | None:
    """Return the index of the first rule that covers a finding."""
    entries = [each.entry for each in finding.parts or (finding,)]
    managers = {"" if each is None else each.manager for each in entries}
    for index, rule in enumerate(ignore):
        if (
            _matches(rule.kind, judged.kind)
            and _matches(rule.name, judged.name)
            and all(_matches(rule.manager, manager) for manager in managers)
            and _covers_path(rule.path, finding)
        ):
            return index
    return None


def _matches(glob: Glob | None, text: str) -> bool:
    return glob is None or glob.matches(text)


def _covers_path(glob: Glob | None, finding: Finding) -> bool:
    if glob is None:
        return True
    if finding.reason is Reason.DELETED:
        return False
    # A subtree is also covered if all its fields are: `/metadata/annotations/a` covers the first annotation, too.
    return glob.matches(finding.path) or (bool(finding.leaves) and all(map(glob.matches, finding.leaves)))


def _joined(container: Finding, inner: list[Finding]) -> list[Finding]:
    first = inner[0]
    if any(each.reason is not first.reason for each in inner):
        return inner
    leaves = tuple(leaf for each in inner for leaf in each.leaves or (each.path,))
    joined = Finding(container.path, first.op, first.reason, first.entry, leaves)
    if all(each.entry == first.entry and not each.parts for each in inner):
        return [joined]
    entries = [each.entry for each in inner if each.entry is not None]
    parts = tuple(part for each in inner for part in each.parts or (each,))
    return [msgspec.structs.replace(joined, entry=managed_fields.latest(entries), parts=parts)]
