"""Compares an object with what the operator attested on it.

Another of the operator's managers may change a field after it was attested, which is not a mismatch. A map that
another manager took as a whole is one mismatch, whatever is different inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentinel.core.drift import managed_fields, paths
from sentinel.core.drift.attestation import Attestation
from sentinel.core.drift.fingerprint import Fingerprint, all_entries
from sentinel.core.drift.judgement import ChangeOp
from sentinel.core.drift.managed_fields import FieldHolders, ManagedEntry
from sentinel.core.drift.rules import Rules
from sentinel.core.json import Json
from sentinel.core.kube import objects


def mismatches(
    now: Fingerprint, attestation: Attestation, document: Mapping[str, Json], rules: Rules
) -> dict[str, ChangeOp]:
    """Return the fields that the operator attested and that are different now, by path.

    The path is empty if all fields were attested together.
    """
    annotation = paths.child(paths.ANNOTATIONS, rules.annotations.fingerprint)
    if now.folded and attestation.fields is None:
        return _total_mismatch(now, attestation, document, annotation, rules)
    held = FieldHolders(all_entries(now, document), rules.managers)
    attesting = held.operators(annotation)
    taken = taken_maps(now, attestation, held)
    differences = attestation.differences(
        document,
        rules,
        is_owned=lambda path: held.is_empty or any(entry in attesting for entry in held.operators(path)),
    )
    outside = {
        path: op
        for path, op in differences.items()
        if taken.isdisjoint(paths.ancestors(path)) and not _is_taken_over(held.operators(path), attesting)
    }
    return outside | dict.fromkeys(taken, ChangeOp.CHANGE)


def _total_mismatch(
    now: Fingerprint, attestation: Attestation, document: Mapping[str, Json], annotation: str, rules: Rules
) -> dict[str, ChangeOp]:
    """Return the mismatch of an object with very many fields, without a list of those that an entry holds."""
    held = FieldHolders(now.entries, rules.managers)
    attesting = held.operators(annotation)
    written = [
        managed_fields.held_names(objects.read_metadata(document), entry, now.folded) for entry in attesting
    ]

    def is_owned(path: str) -> bool:
        above, _, name = path.rpartition("/")
        if held.is_empty:
            return True
        if above not in now.folded:
            return any(entry in attesting for entry in held.operators(path))
        return any(paths.unescaped(name) in names[above] for names in written)

    return attestation.differences(document, rules, is_owned=is_owned)


def taken_maps(now: Fingerprint, attestation: Attestation, held: FieldHolders) -> frozenset[str]:
    """Return the maps that another manager holds as a whole, although the operator applied fields in them."""
    attested = {above for path in attestation.owned for above in paths.ancestors(path)}
    return frozenset(
        path for path in attested if path in now.nodes and held.is_atomic(path) and not held.has_operator(path)
    )


def _is_taken_over(holding: Sequence[ManagedEntry], attesting: Sequence[ManagedEntry]) -> bool:
    """Whether another of the operator's managers changed a field after it was attested."""
    return bool(holding) and not any(entry in attesting for entry in holding)
