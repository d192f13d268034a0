"""Every field of the protocol has a producer and a consumer: the hub and its agents, each in the modules that turn
messages into values and back.

What the values mean is tested where they are used. This finds fields that nobody thought of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.descriptor import Descriptor

import sentinel.drivers.hub_client
import sentinel.hub.grpc
from sentinel.wire.hub.v1 import fleet_pb2 as pb

HUB: Final = Path(sentinel.hub.grpc.__file__).parent
AGENT: Final = Path(sentinel.drivers.hub_client.__file__).parent

NOT_READ_BY_OUR_AGENT: Final = {
    # The status of the call says so.
    "DeregisterResponse.acknowledged",
    "AckDeploymentResponse.acknowledged",
    "DeploymentStatusResponse.acknowledged",
    # It registers again when a token is refused, and heartbeats renew it long before.
    "HeartbeatResponse.token_expires_at",
    # Of the name of a version, which it has.
    "GetConfigResponse.config_id",
    "DeploymentEvent.config_id",
    # For people who look at a version, which they do at the hub.
    "GetConfigResponse.created_at",
    "GetConfigVersionResponse.created_at",
    "GetConfigVersionResponse.change_summary",
    # When something was decided, not when it was sent.
    "Event.timestamp",
}
"""Other agents may need them."""


def messages_of(*roots: Descriptor) -> Iterator[Descriptor]:
    """These messages, and those inside of them."""
    pending, seen = [*roots], set()
    while pending:
        message = pending.pop()
        if message.full_name in seen or message.GetOptions().map_entry:
            continue
        seen.add(message.full_name)
        yield message
        pending += [field.message_type for field in message.fields if field.message_type is not None]


def fields_of(*, is_request: bool) -> set[str]:
    """All fields that agents send, or get, with their messages."""
    methods = pb.DESCRIPTOR.services_by_name["FleetService"].methods
    roots = [method.input_type if is_request else method.output_type for method in methods]
    return {f"{message.name}.{field.name}" for message in messages_of(*roots) for field in message.fields}


def nodes_of(folder: Path) -> list[ast.AST]:
    return [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]


def unread(fields: set[str], folder: Path) -> set[str]:
    """Those of these fields that no module of a folder reads."""
    attributes = {node.attr for node in nodes_of(folder) if isinstance(node, ast.Attribute)}
    return {field for field in fields if field.partition(".")[2] not in attributes}


def unfilled(fields: set[str], folder: Path) -> set[str]:
    """Those of these fields that no module of a folder gives to a new message."""
    filled = {
        f"{call.func.attr}.{keyword.arg}"
        for call in nodes_of(folder)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        for keyword in call.keywords
    }
    return fields - filled


def test_every_field_that_agents_send_is_read_by_the_hub() -> None:
    sent = fields_of(is_request=True)

    assert len(sent) > 50
    assert unread(sent, HUB) == set()


def test_every_field_that_agents_get_is_filled_by_the_hub() -> None:
    received = fields_of(is_request=False)

    assert len(received) > 40
    assert unfilled(received, HUB) == set()


def test_every_field_that_agents_send_is_filled_by_ours() -> None:
    assert unfilled(fields_of(is_request=True), AGENT) == set()


def test_every_field_that_agents_get_is_read_by_ours_or_is_listed_here() -> None:
    received = fields_of(is_request=False)

    assert received >= NOT_READ_BY_OUR_AGENT
    assert unread(received - NOT_READ_BY_OUR_AGENT, AGENT) == set()
