"""Judges an object that was not known before: at the start, or after a gap in which it was created again.

There is no earlier version to compare it with, so it is judged against what the operator attested on it. What
another manager holds beside that was added.
"""

from __future__ import annotations

from collections.abc import Mapping

from sentinel.core.drift import paths
from sentinel.core.drift.attestation import Attestation
from sentinel.core.drift.findings import Finding, conclude, merge
from sentinel.core.drift.fingerprint import Fingerprint, unfolded
from sentinel.core.drift.judgement import ChangeOp, Judgement, Reason
from sentinel.core.drift.managed_fields import FieldHolders, ManagedEntry, latest
from sentinel.core.drift.mismatches import mismatches, taken_maps
from sentinel.core.drift.rules import Rules, Unowned
from sentinel.core.json import Json


def judge_initial(now: Fingerprint, document: Mapping[str, Json], rules: Rules) -> Judgement:
    """Return the judgement on an object, given its fingerprint."""
    if any(entry.folded and not entry.is_of(rules.managers) for entry in now.entries):
        now = unfolded(now, document, rules)  # which keys another manager holds was not kept
    held = FieldHolders(now.entries, rules.managers)
    annotation = paths.child(paths.ANNOTATIONS, rules.annotations.fingerprint)
    findings: list[Finding] = []
    otherwise = Reason.UNCHANGED
    if now.has_foreign_attestation:
        # Another manager overwrote the annotation, so nothing can be said about the rest.
        entry = latest(held.others(annotation))
        findings = [Finding(annotation, ChangeOp.CHANGE, Reason.FINGERPRINT_MISMATCH, entry)]
    elif now.attestation is None:
        otherwise = Reason.UNATTESTED
    else:
        found = mismatches(now, now.attestation, document, rules)
        findings = [
            Finding(path, op, Reason.FINGERPRINT_MISMATCH, latest(held.others(path))) for path, op in found.items()
        ]
        if rules.unowned is not Unowned.NONE:
            findings += _additions(now, now.attestation, held, rules)
    return conclude(now, findings, rules, is_opted_out=now.is_opted_out, otherwise=otherwise, after=now.nodes)


def _additions(now: Fingerprint, attestation: Attestation, held: FieldHolders, rules: Rules) -> list[Finding]:
    """Return what other managers hold, and neither the operator holds nor attested."""
    attested, taken = attestation.owned, taken_maps(now, attestation, held)
    findings: dict[str, Finding] = {}
    for path in now.nodes:
        if not _counts(path, rules):
            continue
        others = held.others(path)
        above = findings.get(paths.parent(path))
        verdict: tuple[Reason, ManagedEntry | None] = Reason.UNCHANGED, None
        if path in attested or held.has_operator(path) or not taken.isdisjoint((path, *paths.ancestors(path))):
            pass
        elif others:
            verdict = Reason.UNOWNED_ADDED, latest(others)
        elif above is not None:  # a default, of what the operator applied or inside of what another manager added
            verdict = above.reason, above.entry
        findings[path] = Finding(path, ChangeOp.ADD, *verdict)
    return [each for each in merge(findings) if each.reason is Reason.UNOWNED_ADDED]


def _counts(path: str, rules: Rules) -> bool:
    """Whether an addition is judged: outside of `metadata`, or one of our annotations.

    The opt-out is drift only once, when it is added. It stays, so it would be drift again at each start.
    """
    if path != "/metadata" and not paths.is_below(path, "/metadata"):
        return True
    is_ours = path.startswith(paths.child(paths.ANNOTATIONS, rules.annotations.prefix))
    return is_ours and path != paths.child(paths.ANNOTATIONS, rules.annotations.ignore)
