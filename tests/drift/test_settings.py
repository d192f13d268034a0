"""The settings of drift detection: the OpenBao preset, another operator, and what is rejected."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sentinel.core.drift.rules import OPENBAO, Unowned
from sentinel.core.drift.trigger import DriftMode
from sentinel.drift import settings
from sentinel.drift.setting_types import KindSettings
from sentinel.drift.settings import ClusterIdentity, DriftSettings
from sentinel.runtime.settings.report import Loaded


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drift.yaml"


def load(file: Path, text: str, **environ: str) -> Loaded[DriftSettings]:
    file.write_text(text)
    return settings.load(file=file, environ=environ)


def problems(file: Path, text: str) -> list[tuple[str, str]]:
    return [(problem.field, problem.message) for problem in load(file, text).problems]


def test_the_defaults_are_the_openbao_preset() -> None:
    loaded = settings.load(environ={})

    given = loaded.settings
    assert given is not None
    assert given.rules == OPENBAO
    assert given.debounce_window == timedelta(seconds=2)
    assert given.longest_wait == timedelta(seconds=10)
    assert (given.debounce_jitter, given.ack_timeout) == (timedelta(0), timedelta(seconds=60))
    assert (given.mode, given.events, given.webhook_url) == (DriftMode.ENFORCE, False, None)
    assert [str(kind) for kind in given.kinds] == [
        "{apiVersion: apps/v1, kind: StatefulSet}",
        "{apiVersion: v1, kind: Service}",
        "{apiVersion: v1, kind: ConfigMap}",
    ]
    assert [kind.resource for kind in given.kinds] == ["statefulsets", "services", "configmaps"]
    assert (given.target.api_version, given.target.resource) == ("openbao.org/v1alpha1", "openbaoclusters")
    assert given.labels_of("prod") == {
        "app.kubernetes.io/managed-by": "openbao-operator",
        "app.kubernetes.io/instance": "prod",
    }
    assert given.annotations.trigger == "openbao.org/sentinel-trigger"


def test_another_operator_is_a_matter_of_configuration(file: Path) -> None:
    given = load(
        file,
        """
        managers: [pg-operator]
        kinds:
        - {apiVersion: apps/v1, kind: Deployment}
        - {apiVersion: net.k8s.io/v1, kind: Ingress, plural: ingresses}
        labels: {pg/cluster: "pg-{name}"}
        target: {apiVersion: pg.example.com/v1, kind: Postgres, plural: postgreses}
        annotation_prefix: pg.example.com/
        unowned: all
        mode: off
        max_wait: 7s
        ignore: [{kind: Deployment, name: "a*", path: /spec/replicas, manager: hpa}]
        webhook_url: https://hooks.example.com/token
        """,
    ).settings

    assert given is not None
    assert given.rules.managers == {"pg-operator"}
    assert given.rules.managed_labels == ("pg/cluster",)
    assert given.rules.unowned is Unowned.ALL
    assert given.rules.annotations.ignore == "pg.example.com/sentinel-ignore"
    (rule,) = given.rules.ignore
    assert [glob is not None and glob.text for glob in (rule.kind, rule.name, rule.path, rule.manager)] == [
        "Deployment",
        "a*",
        "/spec/replicas",
        "hpa",
    ]
    assert given.kinds[1] == KindSettings("net.k8s.io/v1", "Ingress", "ingresses")
    assert given.kinds[1].resource == "ingresses"
    assert given.target.resource == "postgreses"
    assert given.labels_of("a") == {"pg/cluster": "pg-a"}
    assert (given.mode, given.longest_wait) == (DriftMode.OFF, timedelta(seconds=7))
    assert "token" not in repr(given)


def test_the_window_comes_from_its_variable(file: Path) -> None:
    loaded = load(file, "debounce_window_seconds: 3", SENTINEL_DEBOUNCE_WINDOW_SECONDS="5")

    assert loaded.settings is not None
    assert loaded.settings.debounce_window == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", 10),
        ("debounce_jitter_seconds: 60", 310),
        ("{debounce_jitter_seconds: 60, max_wait: 7s}", 7),
    ],
)
def test_the_jitter_does_not_use_up_the_longest_wait(file: Path, text: str, expected: int) -> None:
    loaded = load(file, text)

    assert loaded.settings is not None
    assert loaded.settings.longest_wait == timedelta(seconds=expected)


@pytest.mark.parametrize("window", ["0", "61", "-1", "2s"])
def test_a_window_outside_of_its_bounds_is_rejected(file: Path, window: str) -> None:
    ((field, message),) = problems(file, f"debounce_window_seconds: {window}")

    assert field == "debounce_window_seconds"
    assert message == f'expected a whole number from 1 to 60, got "{window}"'


@pytest.mark.parametrize(
    "kind",
    [
        "{apiVersion: v1, kind: Secret}",
        "{apiVersion: v1, kind: Secrets}",
        "{apiVersion: v1, kind: Other, plural: secrets}",
        "{apiVersion: other/v1, kind: Secret}",
    ],
)
def test_secrets_are_rejected_as_a_kind(file: Path, kind: str) -> None:
    text = f"kinds: [{{apiVersion: v1, kind: Service}}, {kind}]"

    assert problems(file, text) == [("kinds[1]", "expected any kind but Secrets, got Secrets")]


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("{apiVersion: v1, kind: Secret}", "target.kind"),
        ("{apiVersion: v1, kind: Secrets}", "target.kind"),
        ("{apiVersion: other/v1, kind: SECRET}", "target.kind"),
        ("{apiVersion: v1, kind: Other, plural: secrets}", "target.plural"),
    ],
)
def test_secrets_are_rejected_as_the_target(file: Path, target: str, field: str) -> None:
    ((found, message),) = problems(file, f"target: {target}")

    assert found == field
    assert "and never" in message


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("kinds: []", "kinds"),
        ("kinds: Service", "kinds"),
        ("kinds: [{apiVersion: v1, kind: service}]", "kinds[0].kind"),
        ("ignore: [{}]", "ignore[0]"),
        ("ignore: [{path: ''}]", "ignore[0].path"),
        ("ignore: {}", "ignore"),
        ("labels: {}", "labels"),
        ("labels: []", "labels"),
        ("labels: {'a b': c}", "labels"),
        ("labels: {a: 'b c'}", "labels.a"),
        ("annotation_prefix: openbao.org", "annotation_prefix"),
        ("webhook_url: ftp://example.com", "webhook_url"),
        ("webhook_url: 'http://[x'", "webhook_url"),
        ("unowned: some", "unowned"),
        ("target: {kind: x}", "target.kind"),
        ("managers: []", "managers"),
        ("managers: openbao-operator", "managers"),
    ],
)
def test_what_cannot_be_meant_is_rejected_by_name(file: Path, text: str, field: str) -> None:
    assert [each for each, _ in problems(file, text)] == [field]


def test_the_cluster_comes_from_the_environment() -> None:
    loaded = settings.load_cluster_identity({"POD_NAMESPACE": "bao", "CLUSTER_NAME": "prod.a"})

    assert loaded.settings == ClusterIdentity("bao", "prod.a")


@pytest.mark.parametrize(
    "environ", [{}, {"POD_NAMESPACE": "", "CLUSTER_NAME": "Prod"}, {"CLUSTER_NAME": "x" * 64}]
)
def test_both_variables_are_required(environ: dict[str, str]) -> None:
    loaded = settings.load_cluster_identity(environ)

    assert loaded.settings is None
    assert [problem.field for problem in loaded.problems] == ["POD_NAMESPACE", "CLUSTER_NAME"]
