"""Writes the status of OpenBaoClusters.

A pass and the health check write conditions of the same cluster at the same time. A merge patch replaces the whole
list of conditions, so each write reads the list first, and writes of one cluster wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Final

import msgspec

from sentinel.core.json import Json
from sentinel.core.kube import conditions, objects
from sentinel.core.kube.conditions import ConditionStatus
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, OpenBaoCluster
from sentinel.ports.clock import Clock
from sentinel.ports.kube import Conflict, KubeApi, KubeObject, ObjectNotFound

_MAX_MESSAGE: Final = 1_024
_MAX_CONFLICTS: Final = 5


class ConditionType(StrEnum):
    """The conditions of an OpenBaoCluster."""

    READY = "Ready"
    DEGRADED = "Degraded"
    HEALTHY = "Healthy"


class ConditionUpdate(msgspec.Struct, frozen=True):
    """What a condition is to say."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


class StatusWriter:
    """Writes what the operator observed and did. A cluster that is gone is ignored."""

    def __init__(self, api: KubeApi, *, field_manager: str, clock: Clock) -> None:
        self._api = api
        self._field_manager = field_manager
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}

    async def merge(self, cluster: OpenBaoCluster, fields: Mapping[str, Json]) -> None:
        """Merge fields other than conditions into the status. Raises `KubeError` and `KubeUnavailable`."""
        for _ in range(_MAX_CONFLICTS):
            try:
                found = await self._api.get(OPENBAO_CLUSTER, cluster.name, namespace=cluster.namespace)
                if objects.uid(found) == cluster.reference.uid:
                    await self._patch(found, fields)
            except ObjectNotFound:
                return
            except Conflict:
                continue  # such as with a new trigger
            return
        raise Conflict(
            f"{cluster.namespace}/{cluster.name}: expected to write the status, got {_MAX_CONFLICTS} conflicts",
            status=HTTPStatus.CONFLICT,
        )

    async def _patch(self, found: KubeObject, fields: Mapping[str, Json]) -> None:
        """Patch the status of a cluster that was just read. Raises `Conflict` if it has changed meanwhile.

        An API server ignores the uid in a patch of the status, so the version makes sure that it is the same
        object, not one that was deleted and created again.
        """
        namespace, name = objects.key(found)
        await self._api.merge_patch(
            OPENBAO_CLUSTER,
            name,
            {"metadata": {"resourceVersion": objects.resource_version(found)}, "status": dict(fields)},
            namespace=namespace,
            subresource="status",
            field_manager=self._field_manager,
        )

    async def set_conditions(self, cluster: OpenBaoCluster, *updates: ConditionUpdate) -> list[ConditionUpdate]:
        """Set conditions, and the generation that they are about. Returns those whose status or reason changed.

        Raises `KubeError` and `KubeUnavailable`.
        """
        async with self._locks.setdefault(cluster.reference.uid, asyncio.Lock()):
            try:
                found = await self._api.get(OPENBAO_CLUSTER, cluster.name, namespace=cluster.namespace)
            except ObjectNotFound:
                return []
            before = conditions.read(found)
            after, now = before, self._clock.now()
            for update in updates:
                after = conditions.with_condition(
                    after,
                    type=update.type,
                    status=update.status,
                    reason=update.reason,
                    message=update.message[:_MAX_MESSAGE],
                    observed_generation=cluster.generation,
                    now=now,
                )
            status = found.get("status")
            observed = status.get("observedGeneration") if isinstance(status, dict) else None
            if after != before or observed != cluster.generation:
                await self.merge(
                    cluster, {"observedGeneration": cluster.generation, "conditions": conditions.encode(after)}
                )
        known = {each.type: each for each in before}
        return [
            each
            for each in updates
            if each.type not in known
            or (known[each.type].status, known[each.type].reason) != (each.status, each.reason)
        ]

    def forget(self, uid: str) -> None:
        """Forget a cluster that was deleted."""
        self._locks.pop(uid, None)
