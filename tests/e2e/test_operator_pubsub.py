"""`sentinel operator` as a process, with the Pub/Sub emulator, a fake Kubernetes API server and a fake API."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from sentinel.core.json import Json
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from sentinel.ports.kube import KubeKind
from sentinel.testing.kube import FakeKubeServer
from tests.support.brokers.pubsub import PROJECT, emulator_host, open_inbox
from tests.support.brokers.rabbitmq import unique
from tests.support.fleet.fake_api import FleetServer, make_resource
from tests.support.processes.operator import OperatorProcess

NAME, NAMESPACE = "clusters", "hyperfleet-system"
NAMESPACES = KubeKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
SECRETS = KubeKind("", "v1", "Secret", "secrets")
TIMEOUT = timedelta(seconds=90)
KEY = json.dumps(
    {
        "type": "service_account",
        "client_email": "sentinel@example.com",
        "token_uri": "http://127.0.0.1:9/token",
        "private_key": "very-secret-key",
    }
)


def create_config(kube: FakeKubeServer, *, url: str, topic: str) -> None:
    """Create a SentinelConfig for Pub/Sub, with the key of a service account in a Secret."""
    kube.register(SENTINEL_CONFIG, has_status=True)
    kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    data: Json = {"key.json": base64.b64encode(KEY.encode()).decode()}
    kube.create(SECRETS, {"metadata": {"name": "gcp", "namespace": NAMESPACE}, "data": data})
    spec: Json = {
        "resourceType": "clusters",
        "pollInterval": "200ms",
        "backoffNotReady": "1h",
        "hyperfleetAPI": {"url": url},
        "broker": {
            "type": "gcp-pubsub",
            "topic": topic,
            "projectID": PROJECT,
            "credentialsSecretRef": {"name": "gcp"},
        },
    }
    kube.create(SENTINEL_CONFIG, {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})


def conditions(kube: FakeKubeServer) -> dict[str, Any]:
    """The conditions of the SentinelConfig, by type."""
    found: Any = kube.get(SENTINEL_CONFIG, NAME, namespace=NAMESPACE)
    return {each["type"]: each for each in found.get("status", {}).get("conditions", [])}


async def until_reason(kube: FakeKubeServer, condition: str, reason: str) -> None:
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        while conditions(kube).get(condition, {}).get("reason") != reason:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_sentinel_config_publishes_to_pubsub(server: FleetServer, tmp_path: Path) -> None:
    server.put(make_resource("cls-1", observed_generation=0))
    kubeconfig = tmp_path / "kubeconfig"
    async with FakeKubeServer() as kube, open_inbox(emulator_host()) as inbox:
        kubeconfig.write_bytes(kube.kubeconfig())
        create_config(kube, url=server.url, topic=inbox.topic)
        environ = {"PUBSUB_EMULATOR_HOST": emulator_host()}
        async with OperatorProcess(kubeconfig, f"--namespace={NAMESPACE}", environ=environ) as operator:
            (message,) = await inbox.receive(1)
            await until_reason(kube, "Degraded", "Healthy")

            missing = unique("topic")
            kube.merge_patch(SENTINEL_CONFIG, NAME, {"spec": {"broker": {"topic": missing}}}, namespace=NAMESPACE)
            await until_reason(kube, "Accepted", "Invalid")
            invalid = conditions(kube)
            server.put(make_resource("cls-2", observed_generation=0))
            (second,) = await inbox.receive(1)
            while second.message_id == message.message_id:  # Pub/Sub may deliver a message twice
                (second,) = await inbox.receive(1)
            code = await operator.stop()

    assert msgspec.json.decode(message.data)["data"] == {
        "resourceType": "clusters",
        "resourceId": "cls-1",
        "reason": "generation-changed",
    }
    assert message.attributes["ce-subject"] == "cls-1"
    assert missing in invalid["Accepted"]["message"]
    assert invalid["Running"]["reason"] == "Polling", "the previous configuration goes on"
    assert second.attributes["ce-subject"] == "cls-2"
    assert code == 0
    assert b"very-secret-key" not in operator.stderr
