"""The fake as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from sentinel.drift.operator import policy
from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.connection import ApiConnection
from tests.support.kube.watching import TIMEOUT
from tests.support.kube.widgets import WIDGET, WIDGET_DEFINITION, widget


async def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    definition, kubeconfig = tmp_path / "crd.json", tmp_path / "kubeconfig"
    definition.write_bytes(msgspec.json.encode(WIDGET_DEFINITION))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sentinel.testing.kube", "--object", str(definition)),
        *("--kubeconfig", str(kubeconfig), "--token", "secret", "--rbac"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        url = (await process.stdout.readline()).decode().strip()

        access = find_access(kubeconfig=kubeconfig)
        client = KubeClient(ApiConnection(access, user_agent="test"))
        created = await client.create(WIDGET, widget("a"), namespace="default")
        await client.close()
        process.send_signal(signal.SIGTERM)
        await process.wait()

    assert access.server == url
    assert created["spec"] == {"size": 1, "color": "red"}
    assert process.returncode == 0


async def test_it_stores_an_admission_policy_and_its_binding(tmp_path: Path) -> None:
    policy_file, binding_file = tmp_path / "policy.json", tmp_path / "binding.json"
    kubeconfig = tmp_path / "kubeconfig"
    policy_file.write_bytes(msgspec.json.encode(policy.policy()))
    binding_file.write_bytes(msgspec.json.encode(policy.binding()))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sentinel.testing.kube", "--object", str(policy_file), "--object", str(binding_file)),
        *("--kubeconfig", str(kubeconfig), "--token", "secret"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        await process.stdout.readline()

        client = KubeClient(ApiConnection(find_access(kubeconfig=kubeconfig), user_agent="test"))
        stored = [await client.get(kind, policy.NAME) for kind in (policy.POLICY, policy.BINDING)]
        await client.close()
        process.send_signal(signal.SIGTERM)
        await process.wait()

    assert [each["spec"] for each in stored] == [policy.policy()["spec"], policy.binding()["spec"]]


async def test_it_rejects_an_object_that_it_does_not_know(tmp_path: Path) -> None:
    file = tmp_path / "widget.json"
    file.write_bytes(msgspec.json.encode(widget("a")))

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sentinel.testing.kube", "--object", str(file)), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        _, errors = await process.communicate()

    assert process.returncode == 1
    assert b"expected an object of a built-in kind, got Widget of contract.example.com/v1" in errors
