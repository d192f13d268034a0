"""Encodes what streams send, once for all agents that get the same."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, assert_never

from sentinel.hub.grpc import messages
from sentinel.hub.subscriptions import ConfigUpdate, DeploymentNotice, DrainNotice, Notice, Ping
from sentinel.hub.version_cache import VersionCache
from sentinel.ports.errors import Unavailable
from sentinel.wire.hub.v1 import fleet_pb2 as pb

_MAX_REMEMBERED: Final = 64


class EventEncoder:
    """Turns notices into bytes, and remembers the last ones."""

    def __init__(self, versions: VersionCache) -> None:
        self._versions = versions
        self._encoded: OrderedDict[Notice, bytes] = OrderedDict()

    async def encode(self, notice: Notice) -> bytes:
        """Return the event as it is sent."""
        encoded = self._encoded.get(notice)
        if encoded is None:
            encoded = self._encoded[notice] = (await self._event(notice)).SerializeToString()
            while len(self._encoded) > _MAX_REMEMBERED:
                self._encoded.popitem(last=False)
        return encoded

    async def _event(self, notice: Notice) -> pb.Event:
        match notice:
            case ConfigUpdate():
                return messages.config_update(notice, await self._change_summary(notice))
            case DeploymentNotice():
                return messages.deployment(notice)
            case DrainNotice():
                return messages.drain(notice)
            case Ping():
                return messages.ping(notice)
            case _:
                assert_never(notice)

    async def _change_summary(self, notice: ConfigUpdate) -> str:
        try:
            version = await self._versions.assigned(notice.assignment)
        except Unavailable:
            # The agent has to know about the version. The summary is for people.
            return ""
        return "" if version is None else version.change_summary
