"""Leases as JSON: reading them, taking, renewing and releasing them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sentinel.core.json import Json, Malformed
from sentinel.core.kube import lease
from sentinel.core.kube.lease import Lease, Term

NOON = datetime(2025, 10, 21, 12, tzinfo=UTC)
DURATION = timedelta(seconds=15)


def new() -> dict[str, Json]:
    return lease.new(name="sentinel-a", namespace="prod", holder="a", duration=DURATION, time=NOON)


def take(kube_object: dict[str, Json], holder: str, time: datetime, **annotations: str) -> dict[str, Json]:
    return lease.taken(kube_object, holder=holder, duration=DURATION, time=time, annotations=annotations)


def test_a_new_lease_is_written_as_kubernetes_reads_it() -> None:
    assert new() == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "sentinel-a", "namespace": "prod"},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2025-10-21T12:00:00.000000Z",
            "renewTime": "2025-10-21T12:00:00.000000Z",
            "leaseTransitions": 0,
        },
    }


def test_a_renewal_changes_only_the_renew_time() -> None:
    renewed = lease.read(take(new(), "a", NOON + timedelta(seconds=2))).term

    assert renewed == Term("a", DURATION, 0, "2025-10-21T12:00:00.000000Z", "2025-10-21T12:00:02.000000Z")


def test_another_holder_counts_as_a_transition() -> None:
    taken = lease.read(take(new(), "b", NOON + timedelta(seconds=20))).term

    assert taken == Term("b", DURATION, 1, "2025-10-21T12:00:20.000000Z", "2025-10-21T12:00:20.000000Z")


def test_a_renewal_differs_even_if_the_clock_stands_still() -> None:
    assert lease.read(take(new(), "a", NOON)).term.renew_time == "2025-10-21T12:00:00.000001Z"


def test_a_released_lease_has_no_holder() -> None:
    released = lease.released(new(), time=NOON + timedelta(seconds=3), annotations={"cycle": "7"})

    assert lease.read(released).term.holder == ""
    assert lease.read(released).annotations == {"cycle": "7"}
    assert released["spec"] == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": "2025-10-21T12:00:00.000000Z",
        "renewTime": "2025-10-21T12:00:03.000000Z",
        "leaseTransitions": 0,
    }


def test_published_annotations_are_added_and_all_else_is_kept() -> None:
    before: dict[str, Json] = {
        "metadata": {
            "name": "l",
            "resourceVersion": "7",
            "labels": {"a": "b"},
            "annotations": {"x": "1", "y": "1"},
        },
        "spec": {"holderIdentity": "a", "strategy": "OldestEmulationVersion"},
        "other": True,
    }

    after = take(before, "a", NOON, y="2")

    assert after["metadata"] == {
        "name": "l",
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "annotations": {"x": "1", "y": "2"},
    }
    assert after["other"] is True
    assert isinstance(after["spec"], dict)
    assert after["spec"]["strategy"] == "OldestEmulationVersion"
    assert before["spec"] == {"holderIdentity": "a", "strategy": "OldestEmulationVersion"}


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": {"holderIdentity": None, "renewTime": None}}])
def test_a_lease_that_was_never_held_has_no_holder(spec: dict[str, Json]) -> None:
    assert lease.read({"metadata": {}, **spec}) == Lease(Term())


def test_transitions_do_not_overflow() -> None:
    taken = take({"metadata": {}, "spec": {"holderIdentity": "a", "leaseTransitions": 2**31 - 1}}, "b", NOON)

    assert lease.read(taken).term.transitions == 2**31 - 1


@pytest.mark.parametrize(
    ("malformed", "message"),
    [
        ({"spec": {}}, "metadata: expected an object, got nothing"),
        ({"metadata": {}, "spec": []}, "spec: expected an object, got list"),
        ({"metadata": {}, "spec": {"holderIdentity": 1}}, "spec.holderIdentity: expected a text, got int"),
        ({"metadata": {}, "spec": {"leaseTransitions": True}}, "spec.leaseTransitions: expected a number"),
        ({"metadata": {}, "spec": {"leaseTransitions": "1"}}, "spec.leaseTransitions: expected a number"),
        ({"metadata": {}, "spec": {"leaseDurationSeconds": -1}}, "spec.leaseDurationSeconds: expected a number"),
        (
            {"metadata": {}, "spec": {"leaseDurationSeconds": 10**99}},
            "spec.leaseDurationSeconds: expected a number",
        ),
    ],
)
def test_a_malformed_lease_is_refused(malformed: dict[str, Json], message: str) -> None:
    with pytest.raises(Malformed, match=r"expected") as raised:
        lease.read(malformed)

    assert message in str(raised.value)
