"""Every call of a session, for tests that make each of them in the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import pytest

from sentinel.testing.hub_agent import HubAgent
from sentinel.wire.hub.v1 import fleet_pb2 as pb

Call: TypeAlias = Callable[..., Awaitable[object]]

CALLS: Final[Mapping[str, Call]] = {
    "Heartbeat": HubAgent.heartbeat,
    "Deregister": HubAgent.deregister,
    "GetConfig": HubAgent.get_config,
    "GetConfigVersion": lambda agent, **fields: agent.get_config_version("api", 1, **fields),
    "Subscribe": HubAgent.subscribe,
    "AckDeployment": lambda agent, **fields: agent.ack_deployment("unknown", **fields),
    "ReportDeploymentStatus": lambda agent, **fields: agent.report_deployment_status(
        "unknown", pb.DeploymentStatusRequest.COMPLETED, **fields
    ),
}
"""By the name of the method. Keyword arguments replace fields of the request."""
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
