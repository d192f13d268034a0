"""A Lease of `coordination.k8s.io/v1`: who holds it, and how it is taken, renewed and released.

The times in a Lease are those of its holder's clock. They are for people to read: nothing here compares them with
another clock, only with each other, to see whether the Lease was renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from sentinel.core.json import Json, Malformed
from sentinel.core.kube import objects

_SECOND = timedelta(seconds=1)
_MAX_NUMBER = 2**31 - 1


class Term(msgspec.Struct, frozen=True):
    """Who holds a Lease since when. It differs after each renewal."""

    holder: str = ""
    """The identity of the holder; empty if it released the Lease."""
    duration: timedelta = timedelta(0)
    """How long candidates have to wait after a renewal; zero if the holder did not say."""
    transitions: int = 0
    acquire_time: str = ""
    renew_time: str = ""


class Lease(msgspec.Struct, frozen=True):
    """What an election reads of a Lease."""

    term: Term
    annotations: Mapping[str, str] = {}
    """The facts that the leader published."""


def read(kube_object: Mapping[str, Json]) -> Lease:
    """Read a Lease. Raises `Malformed`."""
    spec = _spec(kube_object)
    term = Term(
        holder=_text(spec, "holderIdentity"),
        duration=_SECOND * _number(spec, "leaseDurationSeconds"),
        transitions=_number(spec, "leaseTransitions"),
        acquire_time=_text(spec, "acquireTime"),
        renew_time=_text(spec, "renewTime"),
    )
    return Lease(term, objects.read_annotations(kube_object))


def new(*, name: str, namespace: str, holder: str, duration: timedelta, time: datetime) -> dict[str, Json]:
    """Return a Lease to create."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration // _SECOND,
            "acquireTime": _micro_time(time),
            "renewTime": _micro_time(time),
            "leaseTransitions": 0,
        },
    }


def taken(
    kube_object: Mapping[str, Json],
    *,
    holder: str,
    duration: timedelta,
    time: datetime,
    annotations: Mapping[str, str],
) -> dict[str, Json]:
    """Return the Lease as `holder` takes or renews it, with these annotations added. The rest of it stays.

    Raises `Malformed`.
    """
    before = read(kube_object).term
    changes: dict[str, Json] = {"holderIdentity": holder, "leaseDurationSeconds": duration // _SECOND}
    if before.holder != holder:
        changes["acquireTime"] = _micro_time(time)
        changes["leaseTransitions"] = min(before.transitions + 1, _MAX_NUMBER)
    return _renewed(kube_object, changes, time, annotations)


def released(
    kube_object: Mapping[str, Json], *, time: datetime, annotations: Mapping[str, str]
) -> dict[str, Json]:
    """Return the Lease without a holder, so that a candidate takes it at its next look. Raises `Malformed`."""
    changes: dict[str, Json] = {"holderIdentity": "", "leaseDurationSeconds": 1}  # Kubernetes does not allow zero
    return _renewed(kube_object, changes, time, annotations)


def _renewed(
    kube_object: Mapping[str, Json], changes: Mapping[str, Json], time: datetime, annotations: Mapping[str, str]
) -> dict[str, Json]:
    before = read(kube_object)
    renew_time = _micro_time(time)
    if renew_time == before.term.renew_time:
        # The clock was set back by exactly as much. Candidates have to see a change.
        renew_time = _micro_time(time + timedelta(microseconds=1))
    merged: dict[str, Json] = {**before.annotations, **annotations}
    return {
        **kube_object,
        "metadata": {**objects.read_metadata(kube_object), "annotations": merged},
        "spec": {**_spec(kube_object), **changes, "renewTime": renew_time},
    }


def _micro_time(time: datetime) -> str:
    """Return the time with exactly six digits after the point, which Kubernetes requires."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _spec(kube_object: Mapping[str, Json]) -> Mapping[str, Json]:
    spec = kube_object.get("spec")
    if spec is None:
        return {}
    if not isinstance(spec, dict):
        raise Malformed(f"spec: expected an object, got {type(spec).__name__}")
    return spec


def _text(spec: Mapping[str, Json], field: str) -> str:
    value = spec.get(field)
    if not isinstance(value, str | None):
        raise Malformed(f"spec.{field}: expected a text, got {type(value).__name__}")
    return value or ""


def _number(spec: Mapping[str, Json], field: str) -> int:
    value = spec.get(field)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise Malformed(f"spec.{field}: expected a number from 0 to {_MAX_NUMBER}, got {str(value)[:40]}")
    return value
