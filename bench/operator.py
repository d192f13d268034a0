"""The operator: CPU and memory with ten SentinelConfigs of 10,000 resources each, and the time of an edit.

    python -m tools.services rabbitmq -- python -m bench.operator [--output json]

The process under test is `sentinel operator` with the default poll interval and page size, against a fake API
server of Kubernetes, a fleet in another process and a real RabbitMQ. CPU is what the kernel counts for the whole
process while all pulses poll a healthy fleet. The budgets are the limits of the Deployment that we ship.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec

from bench.budget import Budget
from bench.command_line import DEFAULT_ROUNDS, main
from bench.processes import cpu_seconds, peak_mebibytes
from bench.pulse import fleet_server, rabbitmq_exchange
from sentinel.core.json import Json
from sentinel.operator.sentinel_config import SENTINEL_CONFIG
from tests.support.fleet.fake_api import ResourceShape
from tests.support.processes.operator import OperatorProcess
from tests.support.processes.service import ServiceProcess

CONFIGS = 10
RESOURCES = 10_000
CPU_LIMIT = 100.0
"""Millicores: the CPU limit of the Deployment."""
MEMORY_LIMIT = 128.0
"""MiB: the memory limit of the Deployment."""
EDIT_LIMIT = 1.0
"""Seconds from an edit until a cycle with it has ended."""

_NAMESPACE = "default"
_ROUND_SECONDS = 10
"""Two polls of each pulse."""
_EDITS = 10
_CRD = Path(__file__).parent.parent / "deploy" / "crds" / "sentinelconfigs.hyperfleet.redhat.com.yaml"


class OperatorFigures(msgspec.Struct, frozen=True):
    """The cost of an operator."""

    has_fields: bool
    """Whether the fleet's server returns only the requested fields, as our own API does."""
    millicores: float
    """The cheapest of several rounds."""
    peak_mebibytes: float
    edit_seconds: float
    """The median of several edits."""


async def measure(*, rounds: int = 4) -> Sequence[OperatorFigures]:
    """Run an operator with all SentinelConfigs, on both kinds of servers."""
    return [await _measure(rounds, has_fields=has_fields) for has_fields in (True, False)]


async def _measure(rounds: int, *, has_fields: bool) -> OperatorFigures:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            fleet_server(RESOURCES, datetime.now(UTC), ResourceShape.PLAIN, has_cursor=has_fields) as endpoint,
            rabbitmq_exchange() as broker,
            _kubernetes(Path(directory)) as kube,
        ):
            for number in range(CONFIGS):
                await kube.create(f"shard-{number}", _spec(number, endpoint, broker))
            async with OperatorProcess(kube.kubeconfig, f"--namespace={_NAMESPACE}") as operator:
                for number in range(CONFIGS):
                    await operator.until_event("cycle.done", timeout=120, config=f"shard-{number}")
                costs = [await _millicores(operator) for _ in range(rounds)]
                peak = peak_mebibytes(operator.pid)
                edits = [await _edit(kube, operator, size) for size in range(50, 50 + _EDITS)]
                assert await operator.stop() == 0
    return OperatorFigures(has_fields, min(costs), peak, statistics.median(edits))


def budgets(figures: Sequence[OperatorFigures]) -> list[Budget]:
    """Return the budgets."""
    what = f"`sentinel operator` with {CONFIGS} SentinelConfigs of {RESOURCES:,} resources"
    edit = "from an edit of a SentinelConfig to the end of a cycle with it"
    found: list[Budget] = []
    for one in figures:
        server = "on our own API" if one.has_fields else "on an API without `fields`"
        found += [
            Budget(f"{what}, {server}: CPU", one.millicores, "m", CPU_LIMIT),
            Budget(f"{what}, {server}: peak memory", one.peak_mebibytes, "MiB", MEMORY_LIMIT),
            Budget(f"{edit}, {server}", one.edit_seconds, "s", EDIT_LIMIT),
        ]
    return found


def _spec(number: int, endpoint: str, broker: Mapping[str, str]) -> Json:
    """A spec that selects every resource, by a selector that no other has."""
    expression: Json = {"key": "region", "operator": "In", "values": ["us-east", f"other-{number}"]}
    return {
        "resourceType": "clusters",
        "backoffNotReady": "24h",
        "backoffReady": "24h",
        "shardSelector": {"matchExpressions": [expression]},
        "hyperfleetAPI": {"url": endpoint},
        "broker": {"type": "rabbitmq", "topic": broker["BROKER_EXCHANGE"], "url": broker["BROKER_URL"]},
    }


async def _millicores(operator: ServiceProcess) -> float:
    loop = asyncio.get_running_loop()
    before, started = cpu_seconds(operator.pid), loop.time()
    await asyncio.sleep(_ROUND_SECONDS)
    return (cpu_seconds(operator.pid) - before) / (loop.time() - started) * 1_000


async def _edit(kube: _Kubernetes, operator: ServiceProcess, page_size: int) -> float:
    """Edit a SentinelConfig. Returns the seconds until a cycle with the edit has ended."""
    since, started = len(operator.lines), asyncio.get_running_loop().time()
    await kube.edit("shard-0", {"pageSize": page_size})
    await operator.until_event("config.reloaded", since=since, config="shard-0")
    since = next(n for n in range(since, len(operator.lines)) if operator.lines[n]["event"] == "config.reloaded")
    await operator.until_event("cycle.done", since=since, config="shard-0")
    return asyncio.get_running_loop().time() - started


class _Kubernetes:
    """A fake API server in another process."""

    def __init__(self, session: aiohttp.ClientSession, kubeconfig: Path) -> None:
        self._session = session
        self._path = f"/apis/{SENTINEL_CONFIG.api_version}/namespaces/{_NAMESPACE}/{SENTINEL_CONFIG.plural}"
        self.kubeconfig = kubeconfig

    async def create(self, name: str, spec: Json) -> None:
        body = {
            "apiVersion": SENTINEL_CONFIG.api_version,
            "kind": SENTINEL_CONFIG.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        async with self._session.post(self._path, json=body) as response:
            assert response.status == 201, await response.text()

    async def edit(self, name: str, spec: Json) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        patch = json.dumps({"spec": spec})
        async with self._session.patch(f"{self._path}/{name}", data=patch, headers=headers) as response:
            assert response.status == 200, await response.text()


@asynccontextmanager
async def _kubernetes(directory: Path) -> AsyncIterator[_Kubernetes]:
    crd, kubeconfig = directory / "crd.json", directory / "kubeconfig"
    crd.write_bytes(msgspec.json.encode(msgspec.yaml.decode(_CRD.read_bytes())))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sentinel.testing.kube",
        f"--kubeconfig={kubeconfig}",
        f"--object={crd}",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession(url) as session:
            yield _Kubernetes(session, kubeconfig)
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    sys.exit(main("operator", __doc__, measure, budgets, rounds=DEFAULT_ROUNDS))
