"""A client of the hub's REST API, for the commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from sentinel.cli.client.connection import ServerConnection
from sentinel.cli.client.fleet import decode
from sentinel.cli.client.session import ServerOptions
from sentinel.core.hub.versions import VersionName
from sentinel.core.server_sent_events import ServerSentEvent
from sentinel.drivers.rest.errors import ServerError
from sentinel.drivers.rest.url import segment
from sentinel.hub.deployment_documents import DeploymentDocument, DeploymentInstanceDocument
from sentinel.hub.instance_documents import InstanceDocument
from sentinel.hub.plan_documents import PlanDocument
from sentinel.hub.schemas import (
    ConfigDocument,
    DifferenceDocument,
    SecretDocument,
    VersionDocument,
)
from sentinel.web.lists import MAX_PAGE_SIZE

T = TypeVar("T")

_ROOT = "/api/v1"
_MAX_PAGES = 10_000
"""Protects against a server whose list never ends."""


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    next: str | None = None
    total: int = 0


class HubApiClient:
    """The operations of the hub. Every method raises `ServerError`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def instances(self, *, selector: str = "", state: str = "") -> list[InstanceDocument]:
        query = {"labels": selector, "state": state}
        return [
            decode(item, InstanceDocument)
            async for item in self._all("instances", {name: text for name, text in query.items() if text})
        ]

    async def first_instances(self, size: int) -> tuple[list[InstanceDocument], int]:
        """Return the first page, and how many instances there are."""
        page = await self._get("instances", _Page, query={"size": str(size)})
        return [decode(item, InstanceDocument) for item in page.items], page.total

    async def instance(self, instance_id: str) -> InstanceDocument:
        return await self._get(_instance(instance_id), InstanceDocument)

    async def drain(self, instance_id: str, reason: str) -> InstanceDocument:
        body = {"reason": reason}
        return decode(await self._send("POST", f"{_instance(instance_id)}/drain", body), InstanceDocument)

    async def remove(self, instance_id: str) -> InstanceDocument:
        return decode(await self._send("DELETE", _instance(instance_id)), InstanceDocument)

    async def assign(self, instance_id: str, version: VersionName) -> InstanceDocument:
        body = {"config_id": version.config_id, "version": version.number}
        return decode(await self._send("PUT", f"{_instance(instance_id)}/assignment", body), InstanceDocument)

    async def unassign(self, instance_id: str) -> InstanceDocument:
        return decode(await self._send("DELETE", f"{_instance(instance_id)}/assignment"), InstanceDocument)

    async def configs(self) -> list[ConfigDocument]:
        return [decode(item, ConfigDocument) async for item in self._all("configs", {})]

    async def config(self, config_id: str) -> ConfigDocument:
        return await self._get(_config(config_id), ConfigDocument)

    async def version(self, name: VersionName) -> VersionDocument:
        return await self._get(f"{_config(name.config_id)}/versions/{name.number}", VersionDocument)

    async def versions(self, config_id: str) -> list[VersionDocument]:
        return [decode(item, VersionDocument) async for item in self._all(f"{_config(config_id)}/versions", {})]

    async def create(self, config_id: str, content: str, summary: str) -> VersionDocument:
        body = {"id": config_id, "content": content, "change_summary": summary}
        return decode(await self._send("POST", "configs", body), VersionDocument)

    async def add_version(self, config_id: str, summary: str, **source: str | int) -> VersionDocument:
        body = {**source, "change_summary": summary}
        return decode(await self._send("POST", f"{_config(config_id)}/versions", body), VersionDocument)

    async def diff(self, name: VersionName, base: int | None) -> DifferenceDocument:
        query = {} if base is None else {"from": str(base)}
        return await self._get(
            f"{_config(name.config_id)}/versions/{name.number}/diff", DifferenceDocument, query=query
        )

    async def secrets(self) -> list[SecretDocument]:
        return [decode(item, SecretDocument) async for item in self._all("secrets", {})]

    async def put_secret(self, name: str, value: str) -> None:
        await self._send("PUT", f"secrets/{segment(name)}", {"value": value})

    async def delete_secret(self, name: str) -> None:
        await self._send("DELETE", f"secrets/{segment(name)}")

    async def plan(self, body: Mapping[str, Any]) -> PlanDocument:
        return decode(await self._send("POST", "deployments?dry_run=true", body), PlanDocument)

    async def deploy(self, body: Mapping[str, Any]) -> DeploymentDocument:
        return decode(await self._send("POST", "deployments", body), DeploymentDocument)

    async def deployment(self, deployment_id: str) -> DeploymentDocument:
        return await self._get(_deployment(deployment_id), DeploymentDocument)

    async def deployments(self, *, state: str = "") -> list[DeploymentDocument]:
        """Return deployments, newest first."""
        query = {"state": state} if state else {}
        return [decode(item, DeploymentDocument) async for item in self._all("deployments", query)]

    async def newest_deployments(self, size: int) -> list[DeploymentDocument]:
        """Return the first page, newest first."""
        page = await self._get("deployments", _Page, query={"size": str(size)})
        return [decode(item, DeploymentDocument) for item in page.items]

    async def deployment_instances(self, deployment_id: str) -> list[DeploymentInstanceDocument]:
        """Return the targets of a deployment, in the order of its plan."""
        path = f"{_deployment(deployment_id)}/instances"
        return [decode(item, DeploymentInstanceDocument) async for item in self._all(path, {})]

    async def change_deployment(self, deployment_id: str, action: str) -> DeploymentDocument:
        """Pause, resume, promote, abort, roll back or retry. A retry returns the new deployment."""
        return decode(await self._send("POST", f"{_deployment(deployment_id)}/{action}"), DeploymentDocument)

    def events(self, last_id: str) -> AsyncGenerator[Sequence[ServerSentEvent], None]:
        """Yield the events after `last_id`, or from now on. The first item is empty: the stream is open."""
        return self._connection.events(f"{_ROOT}/events", last_id)

    async def _all(self, path: str, query: Mapping[str, str]) -> AsyncIterator[msgspec.Raw]:
        after: str | None = ""
        for _ in range(_MAX_PAGES):
            sized = {**query, "size": str(MAX_PAGE_SIZE)} | ({"after": after} if after else {})
            page = await self._get(path, _Page, query=sized)
            for item in page.items:
                yield item
            after = page.next
            if after is None:
                return
        raise ServerError(f"{path}: expected at most {_MAX_PAGES} pages, got more")

    async def _get(self, path: str, kind: type[T], *, query: Mapping[str, str] | None = None) -> T:
        return decode((await self._connection.request("GET", f"{_ROOT}/{path}", query=query)).body, kind)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        response = await self._connection.request(
            method,
            f"{_ROOT}/{path}",
            body=None if body is None else msgspec.json.encode(body),
            headers={} if body is None else {"Content-Type": "application/json"},
        )
        return response.body


def run(server: ServerOptions, work: Callable[[HubApiClient], Coroutine[Any, Any, int]]) -> int:
    """Run `work` with a client of the hub that the options name; return the exit code."""
    return server.run_connected(lambda connection: work(HubApiClient(connection)))


def _instance(instance_id: str) -> str:
    return f"instances/{segment(instance_id)}"


def _config(config_id: str) -> str:
    return f"configs/{segment(config_id)}"


def _deployment(deployment_id: str) -> str:
    return f"deployments/{segment(deployment_id)}"
