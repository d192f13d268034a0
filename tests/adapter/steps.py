"""Steps that the tests of the adapter service share."""

from __future__ import annotations

from typing import Any

from sentinel.ports.errors import ApiUnavailable
from tests.support.adapter_harness import AdapterHarness, ScriptedTask


async def pulse_and_settle(harness: AdapterHarness, resource_id: str = "", **event: Any) -> None:
    await harness.pulse(resource_id, **event)
    await harness.until_settled()


async def put_and_settle(harness: AdapterHarness, resource_id: str) -> None:
    harness.api.put(resource_id)
    await pulse_and_settle(harness, resource_id)


async def delete_and_settle(harness: AdapterHarness, resource_id: str) -> None:
    """Create a resource and delete it before its first evaluation."""
    harness.api.put(resource_id)
    harness.api.delete(resource_id)
    await pulse_and_settle(harness, resource_id)


async def start_task(harness: AdapterHarness, task: ScriptedTask) -> None:
    """Start the evaluation of the cluster c1."""
    await harness.put_and_pulse("c1")
    await harness.until(lambda: len(task.resources) == 1)


async def release_and_settle(harness: AdapterHarness, task: ScriptedTask) -> None:
    task.release()
    await harness.until_settled()


async def recover_and_settle(harness: AdapterHarness) -> None:
    """End the outage of the API."""
    harness.api.recover()
    await harness.until_settled()


async def start_outage(harness: AdapterHarness, resource_id: str) -> None:
    """Make the API fail, and wait until the service notices it because of an event."""
    harness.api.fail(ApiUnavailable("connection refused"))
    await harness.pulse(resource_id)
    await until_api_fails(harness)


async def until_api_fails(harness: AdapterHarness) -> None:
    await harness.until(lambda: bool(harness.seen.api_errors))
