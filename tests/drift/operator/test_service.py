"""OpenBaoClusters that come, drift and go while the reference operator runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sentinel.core.drift.rules import OPENBAO
from sentinel.core.times import timestamp
from sentinel.drift.operator import policy
from sentinel.drift.operator.openbao import sidecar_objects
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER
from sentinel.drift.operator.openbao.health import HealthResponse
from sentinel.drift.operator.openbao.server_objects import CONFIG_MAP, SECRET, SERVICE, STATEFUL_SET
from sentinel.ports.kube import KubeKind
from tests.drift.operator.harness import NAMESPACE, TRIGGER, TRIGGER_RESOURCE, DriftHarness

OWN = ((CONFIG_MAP, "prod-config"), (SERVICE, "prod"), (STATEFUL_SET, "prod"), (SECRET, "prod-tls"))


def sidecar_kinds(harness: DriftHarness, name: str = "prod-sentinel") -> list[str]:
    """Return the kinds of the sidecar's objects that exist."""
    return [kind.kind for kind in sidecar_objects.KINDS if harness.find(kind, name) is not None]


def set_last_full_pass(harness: DriftHarness, age: timedelta) -> None:
    time = timestamp((datetime.now(UTC) - age).replace(microsecond=0))
    harness.server.merge_patch(
        OPENBAO_CLUSTER,
        "prod",
        {"status": {"drift": {"lastFullReconcileTime": time}}},
        namespace=NAMESPACE,
        subresource="status",
    )


class TestObjects:
    async def test_a_cluster_gets_its_four_objects(self, harness: DriftHarness) -> None:
        harness.start()

        created = harness.create()
        await harness.ready()

        for kind, name in OWN:
            found = harness.find(kind, name)
            assert found["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"], name  # type: ignore[index,call-overload]
            assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {"openbao-operator"}
            assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "openbao-operator"
            assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "prod"
        assert harness.find(CONFIG_MAP, "prod-config")["data"] == {"config.hcl": "ui = true"}
        assert set(harness.last_runs()) == {"certs", "infra", "upgrade", "backup"}
        assert harness.status()["version"] == "2.4.1"

    async def test_watched_objects_carry_a_fingerprint_and_secrets_do_not(self, harness: DriftHarness) -> None:
        harness.start()

        harness.create()
        await harness.ready()

        marked = {
            kind.kind: OPENBAO.annotations.fingerprint
            in harness.find(kind, name)["metadata"].get("annotations", {})
            for kind, name in OWN
        }
        assert marked == {"ConfigMap": True, "Service": True, "StatefulSet": True, "Secret": False}

    async def test_a_changed_spec_is_applied(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()

        harness.edit({"spec": {"replicas": 5, "config": "ui = false"}})

        await harness.until(lambda: harness.find(STATEFUL_SET, "prod")["spec"]["replicas"] == 5)
        await harness.until(lambda: harness.status()["observedGeneration"] == 2)
        assert harness.find(CONFIG_MAP, "prod-config")["data"] == {"config.hcl": "ui = false"}

    async def test_an_idle_operator_writes_nothing_to_its_objects(self, harness: DriftHarness) -> None:
        harness.create(sentinel={})
        harness.start(resync=timedelta(milliseconds=20))
        await harness.ready()
        versions = [harness.find(kind, name)["metadata"]["resourceVersion"] for kind, name in OWN]

        harness.server.clear_requests()
        await harness.server.wait_for_request(lambda each: each.path.endswith("/prod-tls"), count=6)

        assert [harness.find(kind, name)["metadata"]["resourceVersion"] for kind, name in OWN] == versions

    @pytest.mark.parametrize(("kind", "name"), OWN, ids=lambda each: str(each))
    async def test_a_deleted_object_is_made_again(self, harness: DriftHarness, kind: KubeKind, name: str) -> None:
        harness.start()
        harness.create()
        await harness.ready()

        harness.server.delete(kind, name, namespace=NAMESPACE)
        harness.trigger(f"{kind.kind}/{NAMESPACE}/{name}")

        await harness.until(lambda: harness.find(kind, name) is not None)

    async def test_the_servers_of_a_service_are_not_the_sidecar(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create(sentinel={})
        await harness.ready()

        selector = harness.find(SERVICE, "prod")["spec"]["selector"]
        servers = harness.find(STATEFUL_SET, "prod")["spec"]["template"]["metadata"]["labels"]
        sentinel = harness.find(sidecar_objects.DEPLOYMENT, "prod-sentinel")["spec"]["template"]["metadata"][
            "labels"
        ]

        assert selector.items() <= servers.items()
        assert not selector.items() <= sentinel.items()


class TestDrift:
    async def test_a_trigger_restores_and_is_cleared(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create(sentinel={})
        await harness.ready()

        harness.server.merge_patch(STATEFUL_SET, "prod", {"spec": {"replicas": 0}}, namespace=NAMESPACE)
        harness.trigger()

        await harness.until(lambda: TRIGGER not in harness.annotations())
        assert harness.find(STATEFUL_SET, "prod")["spec"]["replicas"] == 3
        assert harness.annotations() == {}
        drift = harness.drift()
        assert drift["driftCorrectionCount"] == 1
        assert drift["lastDriftResource"] == "StatefulSet/default/prod"
        assert drift["lastDriftDetected"] <= drift["lastCorrectionTime"]
        await harness.until(lambda: harness.drift()["consecutiveFastPaths"] == 0)

    async def test_what_others_added_is_removed(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        wanted = [harness.find(kind, name) for kind, name in OWN[:3]]
        injected = {"name": "miner", "image": "example.com/miner"}
        containers = [*wanted[2]["spec"]["template"]["spec"]["containers"], injected]
        port = {"name": "shell", "port": 22, "targetPort": 22, "protocol": "TCP"}

        patches: list[tuple[KubeKind, str, Any]] = [
            (STATEFUL_SET, "prod", {"spec": {"template": {"spec": {"containers": containers}}}}),
            (
                SERVICE,
                "prod",
                {"spec": {"ports": [*wanted[1]["spec"]["ports"], port], "externalIPs": ["1.2.3.4"]}},
            ),
            (CONFIG_MAP, "prod-config", {"data": {"extra.hcl": "x"}, "binaryData": {"x": "eA=="}}),
        ]
        for kind, name, patch in patches:
            harness.server.merge_patch(kind, name, patch, namespace=NAMESPACE)
        harness.trigger()

        await harness.until(lambda: TRIGGER not in harness.annotations())
        for (kind, name), before in zip(OWN, wanted, strict=False):
            content = {key: value for key, value in harness.find(kind, name).items() if key != "metadata"}
            assert content == {key: value for key, value in before.items() if key != "metadata"}

    async def test_lost_labels_return_and_foreign_annotations_stay(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        ignore, own = OPENBAO.annotations.ignore, "openbao.org/other"

        metadata: Any = {
            "labels": {"app.kubernetes.io/managed-by": None, "team": "x"},
            "annotations": {"example.com/note": "x", ignore: "true", own: "x"},
        }
        harness.server.merge_patch(SERVICE, "prod", {"metadata": metadata}, namespace=NAMESPACE)
        harness.trigger("Service/default/prod")

        await harness.until(lambda: TRIGGER not in harness.annotations())
        found = harness.find(SERVICE, "prod")["metadata"]
        assert found["labels"]["app.kubernetes.io/managed-by"] == "openbao-operator"
        assert found["labels"]["team"] == "x"
        assert found["annotations"].keys() == {"example.com/note", ignore, OPENBAO.annotations.fingerprint}

    async def test_a_newer_trigger_survives_the_one_that_is_handled(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        harness.server.delay_responses(timedelta(milliseconds=30))
        harness.server.clear_requests()

        harness.trigger("Service/default/prod", value="2026-11-18T09:00:00.000000001Z")
        await harness.server.wait_for_request(lambda each: each.path.endswith("/prod-tls"))
        harness.trigger("ConfigMap/default/prod-config", value="2026-11-18T09:00:00.000000002Z")
        await harness.until(lambda: TRIGGER not in harness.annotations())

        assert harness.drift()["driftCorrectionCount"] == 2
        assert harness.drift()["lastDriftResource"] == "ConfigMap/default/prod-config"
        for kind in ("Service", "ConfigMap"):
            assert harness.metric("detected_total", namespace=NAMESPACE, name="prod", resource_kind=kind) == 1

    async def test_a_failure_keeps_the_trigger_and_is_shown(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        harness.server.fail_next(403, plural="statefulsets", verb="patch", count=3)

        value = harness.trigger()
        await harness.until(lambda: harness.reasons()["Ready"] == "False/StepFailed")
        kept = harness.annotations().get(TRIGGER)
        await harness.until(lambda: TRIGGER not in harness.annotations())

        assert kept == value
        await harness.until(lambda: harness.reasons()["Ready"] == "True/Reconciled")
        assert harness.drift()["driftCorrectionCount"] == 1
        assert harness.metric("detected_total", namespace=NAMESPACE, name="prod", resource_kind="StatefulSet") == 1
        assert harness.metric("corrected_total", namespace=NAMESPACE, name="prod") == 1

    async def test_a_trigger_set_while_the_operator_was_down_is_handled(self, harness: DriftHarness) -> None:
        harness.create()
        harness.trigger()

        harness.start()

        await harness.until(lambda: TRIGGER not in harness.annotations())
        assert harness.drift()["driftCorrectionCount"] == 1

    async def test_a_paused_cluster_is_left_alone(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()

        harness.edit({"spec": {"paused": True}})
        await harness.until(lambda: harness.reasons()["Ready"] == "Unknown/Paused")
        harness.server.delete(SERVICE, "prod", namespace=NAMESPACE)
        value = harness.trigger()
        harness.create("other")
        await harness.ready("other")

        assert harness.annotations()[TRIGGER] == value
        assert harness.find(SERVICE, "prod") is None
        harness.edit({"spec": {"paused": False}})
        await harness.until(lambda: TRIGGER not in harness.annotations())
        assert harness.find(SERVICE, "prod") is not None

    async def test_a_cluster_that_is_being_deleted_is_left_alone(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        harness.edit({"metadata": {"finalizers": ["example.com/wait"]}})
        harness.server.delete(OPENBAO_CLUSTER, "prod", namespace=NAMESPACE)

        harness.server.delete(SERVICE, "prod", namespace=NAMESPACE)
        value = harness.trigger()
        harness.create("other")
        await harness.ready("other")

        assert harness.find(SERVICE, "prod") is None
        assert harness.annotations()[TRIGGER] == value

    async def test_the_trigger_of_a_paused_cluster_counts_as_handled(self, harness: DriftHarness) -> None:
        labels = {"namespace": NAMESPACE, "name": "prod"}
        harness.start()
        harness.create()
        await harness.ready()
        harness.server.fail_next(403, plural="statefulsets", verb="patch", count=1_000)
        harness.trigger()
        await harness.until(lambda: harness.metric("unhandled", **labels) == 1)

        harness.edit({"spec": {"paused": True}})

        await harness.until(lambda: harness.metric("unhandled", **labels) == 0)

    async def test_a_cluster_has_its_metrics_before_its_first_pass(self, harness: DriftHarness) -> None:
        harness.start()

        harness.create(paused=True)

        await harness.until(lambda: harness.metric("corrected_total", namespace=NAMESPACE, name="prod") == 0)

    async def test_an_old_full_pass_makes_the_trigger_cause_one(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        set_last_full_pass(harness, timedelta(minutes=6))
        harness.server.clear_requests()

        harness.trigger()
        await harness.until(lambda: TRIGGER not in harness.annotations())
        await harness.until(lambda: harness.event_reasons() == ["DriftCorrected"])

        (event,) = harness.server.objects(KubeKind("", "v1", "Event", "events"), namespace=NAMESPACE)
        assert str(event["message"]).endswith("forced pass")

    async def test_metrics_of_a_deleted_cluster_are_removed(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()
        harness.trigger("Deployment/default/unwatched")
        await harness.until(lambda: TRIGGER not in harness.annotations())
        labels = {"namespace": NAMESPACE, "name": "prod"}
        counted = harness.metric("detected_total", **labels, resource_kind="other")

        harness.server.delete(OPENBAO_CLUSTER, "prod", namespace=NAMESPACE)

        await harness.until(lambda: harness.metric("corrected_total", **labels) is None)
        assert counted == 1
        assert harness.metric("last_detected_timestamp", **labels) is None

    async def test_kinds_in_metrics_are_a_closed_set(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.ready()

        for number in range(3):
            harness.trigger(f"Kind{number}/default/x")
            await harness.until(lambda: TRIGGER not in harness.annotations())

        kinds = {
            sample.labels["resource_kind"]
            for family in harness.registry.collect()
            for sample in family.samples
            if sample.name == "openbao_drift_detected_total"
        }
        assert kinds == {"StatefulSet", "Service", "ConfigMap", "other"}


class TestSidecar:
    async def test_it_is_deployed_with_its_own_account(self, harness: DriftHarness) -> None:
        harness.start()

        harness.create(sentinel={})
        await harness.ready()

        assert sidecar_kinds(harness) == ["ServiceAccount", "Role", "RoleBinding", "Deployment"]
        assert harness.reasons()["Degraded"] == "False/AdmissionPoliciesReady"
        pod = harness.find(sidecar_objects.DEPLOYMENT, "prod-sentinel")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["serviceAccountName"] == "prod-sentinel"
        assert container["image"] == "openbao/operator-sentinel:1.2.3"
        assert {each["name"]: each.get("value") for each in container["env"]} == {
            "POD_NAMESPACE": None,
            "CLUSTER_NAME": "prod",
            "SENTINEL_DEBOUNCE_WINDOW_SECONDS": "2",
        }
        assert container["resources"] == {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "200m", "memory": "128Mi"},
        }

    async def test_its_settings_come_from_the_spec(self, harness: DriftHarness) -> None:
        harness.start()

        harness.create(
            sentinel={
                "image": "example.com/s:1",
                "debounceWindowSeconds": 7,
                "resources": {"limits": {"memory": "1Gi"}},
            }
        )
        await harness.ready()

        deployment = harness.find(sidecar_objects.DEPLOYMENT, "prod-sentinel")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "example.com/s:1"
        assert container["resources"] == {"limits": {"memory": "1Gi"}}
        assert container["env"][2]["value"] == "7"

    @pytest.mark.parametrize("sentinel", [None, {"enabled": False}], ids=["absent", "disabled"])
    async def test_it_is_removed_when_it_is_not_wanted(self, harness: DriftHarness, sentinel: Any) -> None:
        harness.start()
        harness.create(sentinel={})
        harness.create("other", sentinel={})
        await harness.ready()
        await harness.ready("other")

        harness.edit({"spec": {"sentinel": sentinel}})

        await harness.until(lambda: sidecar_kinds(harness) == [])
        await harness.until(lambda: harness.reasons()["Degraded"] == "False/SentinelDisabled")
        assert len(sidecar_kinds(harness, "other-sentinel")) == 4

    async def test_an_account_of_somebody_else_is_not_removed(self, harness: DriftHarness) -> None:
        account: Any = {"metadata": {"name": "prod-sentinel", "namespace": NAMESPACE}}
        harness.server.create(sidecar_objects.SERVICE_ACCOUNT, account)
        harness.start()

        harness.create()
        await harness.ready()

        assert sidecar_kinds(harness) == ["ServiceAccount"]

    @pytest.fixture
    async def unprotected(self, bare_harness: DriftHarness) -> DriftHarness:
        """With a cluster that wants a sidecar, and without the policy that the sidecar needs."""
        bare_harness.start()
        bare_harness.create(sentinel={})
        await bare_harness.ready()
        return bare_harness

    async def test_without_the_policy_it_is_not_deployed(self, unprotected: DriftHarness) -> None:
        assert unprotected.reasons()["Degraded"] == "True/AdmissionPoliciesNotReady"
        assert sidecar_kinds(unprotected) == []
        assert unprotected.find(STATEFUL_SET, "prod") is not None
        await unprotected.until(lambda: "AdmissionPoliciesNotReady" in unprotected.event_reasons())

    async def test_a_policy_that_comes_and_goes_is_noticed(self, unprotected: DriftHarness) -> None:
        unprotected.install_policy()
        await unprotected.until(lambda: unprotected.reasons()["Degraded"] == "False/AdmissionPoliciesReady")
        deployed = sidecar_kinds(unprotected)
        unprotected.server.delete(policy.BINDING, policy.NAME)
        await unprotected.until(lambda: unprotected.reasons()["Degraded"] == "True/AdmissionPoliciesNotReady")

        assert len(deployed) == 4
        assert sidecar_kinds(unprotected) == []

    async def test_without_the_policy_a_trigger_skips_no_step(self, unprotected: DriftHarness) -> None:
        unprotected.trigger()
        await unprotected.until(lambda: TRIGGER not in unprotected.annotations())
        await unprotected.until(lambda: "DriftCorrected" in unprotected.event_reasons())

        events = unprotected.server.objects(KubeKind("", "v1", "Event", "events"), namespace=NAMESPACE)
        assert any(str(each["message"]).endswith("forced pass") for each in events)

    @pytest.mark.parametrize("status", [401, 403, 503])
    async def test_a_policy_that_cannot_be_read_removes_nothing(self, harness: DriftHarness, status: int) -> None:
        harness.start()
        harness.create(sentinel={})
        await harness.ready()
        harness.server.clear_requests()

        harness.server.fail_next(status, plural="validatingadmissionpolicies", verb="get", count=2)
        await harness.server.wait_for_request(
            lambda each: "/validatingadmissionpolicies/" in each.path and each.status == 200
        )

        assert len(sidecar_kinds(harness)) == 4
        assert harness.reasons()["Degraded"] == "False/AdmissionPoliciesReady"

    async def test_a_policy_that_may_not_be_read_counts_as_none(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create(sentinel={})
        await harness.ready()

        harness.server.fail_next(403, plural="validatingadmissionpolicies", verb="get", count=1_000)

        await harness.until(lambda: harness.reasons()["Degraded"] == "True/AdmissionPoliciesNotReady")
        assert sidecar_kinds(harness) == []


class TestHealth:
    @pytest.mark.parametrize(
        ("response", "expected"),
        [
            (HealthResponse(200), "True/Active"),
            (HealthResponse(429), "True/Standby"),
            (HealthResponse(501), "False/NotInitialized"),
            (HealthResponse(503), "False/Sealed"),
            (HealthResponse(418), "Unknown/Unexpected"),
            (HealthResponse(error="connection refused"), "Unknown/Unreachable"),
        ],
        ids=lambda each: str(each),
    )
    async def test_the_condition_says_what_openbao_says(
        self, harness: DriftHarness, response: HealthResponse, expected: str
    ) -> None:
        harness.health = response
        harness.start()

        harness.create()

        await harness.until(lambda: harness.reasons().get("Healthy") == expected)
        url, authority = harness.health_requests[0]
        assert url == "https://prod.default.svc:8200"
        assert authority.startswith("-----BEGIN CERTIFICATE-----")

    async def test_a_sealed_server_is_noticed_later(self, harness: DriftHarness) -> None:
        harness.start()
        harness.create()
        await harness.until(lambda: harness.reasons().get("Healthy") == "True/Active")

        harness.health = HealthResponse(503)

        await harness.until(lambda: harness.reasons().get("Healthy") == "False/Sealed")
        assert harness.reasons()["Ready"] == "True/Reconciled"


async def test_many_triggers_at_once_do_not_starve_the_slow_steps(harness: DriftHarness) -> None:
    harness.start()
    harness.create()
    await harness.ready()

    for number in range(12):
        harness.trigger(value=f"2026-11-18T09:00:00.{number:09d}Z")
        await asyncio.sleep(0)
    await harness.until(lambda: TRIGGER not in harness.annotations())

    await harness.until(lambda: harness.drift()["consecutiveFastPaths"] == 0)
    assert TRIGGER_RESOURCE not in harness.annotations()
