"""Generated histories of objects, played on a model of server-side apply that the fake API server shares.

An operator alone is never drift, whatever it applies and whatever times the entries have. Another manager that
touches what the operator owns, or adds to spec or data, always is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.core.drift.attestation import attest
from sentinel.core.drift.fingerprint import Fingerprint
from sentinel.core.drift.judge import judge
from sentinel.core.drift.judgement import Reason
from sentinel.core.drift.rules import OPENBAO
from sentinel.testing.kube import ownership
from sentinel.testing.kube.kinds import STATEFUL_SET, Kinds, ServedKind
from sentinel.testing.kube.managed_fields import Writer
from tests.core.drift.objects import LABELS, OPERATOR

SERVED = Kinds().of(STATEFUL_SET)
START = datetime(2026, 1, 1, tzinfo=UTC)
CONTAINERS = ("bao", "proxy")
VALUES = st.integers(1, 3)
TEXTS = st.sampled_from(["a", "b"])

ENV = st.dictionaries(st.sampled_from(["LEVEL", "MODE"]), TEXTS)
WANTED = st.fixed_dictionaries(
    {"containers": st.dictionaries(st.sampled_from(CONTAINERS), st.tuples(TEXTS, ENV), min_size=1)},
    optional={
        "replicas": VALUES,
        "selector": st.dictionaries(TEXTS, TEXTS),
        "args": st.lists(TEXTS, max_size=2),
        "annotations": st.dictionaries(st.sampled_from(["x", "openbao.org/y"]), TEXTS),
    },
)
"""What an operator wants."""

PAUSES = st.sampled_from([timedelta(0), timedelta(milliseconds=400), timedelta(seconds=2)])


def manifest(wanted: Any, *, attests: bool) -> dict[str, Any]:
    """Return what the operator applies."""
    containers = [
        {"name": name, "image": image, "env": [{"name": key, "value": value} for key, value in env.items()]}
        | ({"args": wanted["args"]} if "args" in wanted else {})
        for name, (image, env) in wanted["containers"].items()
    ]
    pod = {"containers": containers} | ({"nodeSelector": wanted["selector"]} if "selector" in wanted else {})
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "prod", "labels": dict(LABELS), "annotations": dict(wanted.get("annotations", {}))},
        "spec": {"template": {"spec": pod}} | ({"replicas": wanted["replicas"]} if "replicas" in wanted else {}),
    }
    if attests:
        body["metadata"]["annotations"][OPENBAO.annotations.fingerprint] = attest(body, OPENBAO)
    return body


class Model:
    """One object on an API server, and the sidecar that watches it."""

    def __init__(self, served: ServedKind = SERVED) -> None:
        self.now = START
        self._served = served
        self.body: Any = None
        self.state: Fingerprint | None = None

    def wait(self, pause: timedelta) -> None:
        self.now += pause

    def apply(self, body: Any, manager: str = OPERATOR) -> None:
        new, owners = ownership.after_apply(self._served, self.body, body, self._writer(manager), is_forced=True)
        self.body = ownership.with_owners(new, owners)

    def update(self, manager: str, change: Callable[[Any], object], subresource: str = "") -> None:
        new = copy.deepcopy(self.body)
        change(new)
        owners = ownership.after_update(self._served, self.body, new, None, self._writer(manager, subresource))
        self.body = ownership.with_owners(new, owners)

    def write_status(self, replicas: int) -> None:
        self.update("kube-controller-manager", lambda body: body.update(status={"replicas": replicas}), "status")

    def see(self) -> Any:
        judgement, self.state = judge(self.state, self.body, OPENBAO)
        return judgement

    def _writer(self, manager: str, subresource: str = "") -> Writer:
        ignored = ownership.ignored_fields(self._served, subresource)
        return Writer(manager, "apps/v1", self.now, subresource, ignored)


HISTORY = st.lists(
    st.tuples(WANTED, PAUSES, st.booleans(), st.sampled_from(["apply", "status", "update"])),
    min_size=1,
    max_size=5,
)


"""What the operator wants, the pause before, whether the sidecar sees the write by itself, and who writes what."""


def set_replicas(value: int) -> Callable[[Any], object]:
    return lambda body: body["spec"].update(replicas=value)


@settings(max_examples=40)
@given(history=HISTORY, attests=st.booleans())
def test_an_operator_alone_is_never_drift(history: list[tuple[Any, timedelta, bool, str]], attests: bool) -> None:
    model = Model()
    for number, (wanted, pause, is_seen, kind) in enumerate(history):
        # At equal times, only the attestation tells its removal from that of another.
        model.wait(pause if attests else timedelta(seconds=1))
        if kind == "status" and model.body is not None:
            model.write_status(number)
        elif kind == "update" and model.body is not None and "replicas" not in wanted:
            model.update("manager", set_replicas(number + 1))
        else:
            model.apply(manifest(wanted, attests=attests))
        if is_seen or number == 0:
            judgement = model.see()
            assert not judgement.is_drift, judgement
            if attests:
                first, _ = judge(None, model.body, OPENBAO)
                assert first.reason is Reason.UNCHANGED, first


def first_container(body: Any) -> Any:
    return body["spec"]["template"]["spec"]["containers"][0]


def pod(body: Any) -> Any:
    return body["spec"]["template"]["spec"]


ON_OWNED: dict[str, Callable[[Any], object]] = {
    "image": lambda body: first_container(body).update(image="evil"),
    "no image": lambda body: first_container(body).pop("image"),
    "no container": lambda body: pod(body)["containers"].pop(),
    "no template": lambda body: body["spec"].pop("template"),
    "label": lambda body: body["metadata"]["labels"].update({"app.kubernetes.io/instance": "dev"}),
    "no label": lambda body: body["metadata"]["labels"].pop("app.kubernetes.io/instance"),
    "no labels": lambda body: body["metadata"].pop("labels"),
}
ADDITIONS: dict[str, Callable[[Any], object]] = {
    "container": lambda body: pod(body)["containers"].append({"name": "evil", "image": "evil"}),
    "variable": lambda body: first_container(body).setdefault("env", []).append({"name": "EVIL", "value": "x"}),
    "port": lambda body: first_container(body).update(ports=[{"containerPort": 1, "protocol": "TCP"}]),
    "field": lambda body: body["spec"].update(minReadySeconds=7),
    "annotation of the template": lambda body: body["spec"]["template"].update(
        metadata={"annotations": {"a": "b"}}
    ),
    "annotation of ours": lambda body: body["metadata"]["annotations"].update({"openbao.org/evil": "x"}),
    "tolerations": lambda body: pod(body).update(tolerations=[{"operator": "Exists"}]),
}
FOREIGN = st.sampled_from([*ON_OWNED.items(), *ADDITIONS.items()])


@settings(max_examples=60)
@given(
    earlier=st.lists(WANTED, max_size=2),
    wanted=WANTED,
    foreign=FOREIGN,
    manager=st.sampled_from(["kubectl-edit", "kube-controller-manager", "openbao-operators"]),
    pause=PAUSES,
    is_merged=st.booleans(),
    noise=st.booleans(),
)
def test_another_manager_is_always_drift(
    earlier: list[Any],
    wanted: Any,
    foreign: tuple[str, Callable[[Any], object]],
    manager: str,
    pause: timedelta,
    is_merged: bool,
    noise: bool,
) -> None:
    """Also in the same event as a write of the operator, which a relist may show, and as a write of the status."""
    name, change = foreign
    model = Model()
    for each in (*earlier, wanted):
        model.apply(manifest(each, attests=True))
        model.wait(pause)
    model.see()
    if is_merged:
        model.apply(manifest({**wanted, "annotations": {"x": "merged"}}, attests=True))
    model.update(manager, change)
    if noise:
        model.write_status(9)

    judgement = model.see()

    assert judgement.is_drift, judgement
    if name.endswith(("label", "labels")):
        assert judgement.reason is Reason.LABEL_LOST
    elif name in ON_OWNED:
        assert judgement.reason in (Reason.OWNED_FIELD_CHANGED, Reason.OWNED_FIELD_REMOVED)
    else:
        assert judgement.reason is Reason.UNOWNED_ADDED
        assert judgement.actor.manager == manager

    again = copy.deepcopy(model)
    model.apply(manifest(wanted, attests=True))
    assert not model.see().is_drift
    if name == "image":
        again.update(manager, lambda body: first_container(body).update(image="worse"))
        assert again.see().reason is Reason.OWNED_FIELD_CHANGED
    assert judge(None, again.body, OPENBAO)[0].is_drift


@settings(max_examples=25)
@given(wanted=WANTED, names=st.lists(st.sampled_from([*ADDITIONS]), min_size=1, max_size=3, unique=True))
def test_what_is_applied_by_another_manager_is_drift_too(wanted: Any, names: list[str]) -> None:
    model = Model()
    model.apply(manifest(wanted, attests=True))
    model.see()
    theirs: Any = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "prod", "annotations": {}},
        "spec": {"template": {"spec": {"containers": [{"name": "bao", "env": []}]}}},
    }
    for name in names:
        ADDITIONS[name](theirs)

    model.apply(theirs, "team")

    judgement = model.see()
    assert judgement.reason is Reason.UNOWNED_ADDED
    assert judgement.actor.manager == "team"
