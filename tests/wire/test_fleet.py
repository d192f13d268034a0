"""The protocol's names and numbers, pinned by bytes: agents of any version and in any language rely on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from sentinel.wire.hub.v1 import fleet_pb2, fleet_pb2_grpc

MINUS_ONE = b"\xff" * 9 + b"\x01"
LARGE, LARGE_BYTES = 2**40, b"\x80\x80\x80\x80\x80\x20"
ONE_AND_A_HALF = b"\x00\x00\x00\x00\x00\x00\xf8\x3f"

Row = tuple[str, bytes, object]

INSTANCE_AND_TOKEN: Sequence[Row] = [("instance_id", b"\x0a\x01a", "a"), ("token", b"\x12\x01a", "a")]

FIELDS: Mapping[str, Sequence[Row]] = {
    "RegisterRequest": [
        ("instance_id", b"\x0a\x01a", "a"),
        ("instance_name", b"\x12\x01a", "a"),
        ("hostname", b"\x1a\x01a", "a"),
        ("agent_version", b"\x22\x01a", "a"),
        ("sentinel_version", b"\x2a\x01a", "a"),
        ("labels", b"\x32\x06\x0a\x01k\x12\x01v", {"k": "v"}),
        ("capabilities", b"\x3a\x01a\x3a\x01b", ["a", "b"]),
        ("registration_token", b"\x42\x01a", "a"),
    ],
    "RegisterResponse": [
        ("token", b"\x0a\x01a", "a"),
        ("config_version", b"\x12\x01a", "a"),
        ("config_hash", b"\x1a\x01a", "a"),
        ("heartbeat_interval", b"\x20" + MINUS_ONE, -1),
        ("token_expires_at", b"\x28" + LARGE_BYTES, LARGE),
    ],
    "HeartbeatRequest": [
        *INSTANCE_AND_TOKEN,
        ("status", b"\x1a\x02\x08\x01", fleet_pb2.InstanceStatus(state=fleet_pb2.InstanceStatus.HEALTHY)),
        ("current_config_version", b"\x22\x01a", "a"),
        ("current_config_hash", b"\x2a\x01a", "a"),
        ("metrics", b"\x32\x02\x08\x05", fleet_pb2.InstanceMetrics(requests_total=5)),
        ("buffered", b"\x3a\x02\x08\x07", [fleet_pb2.BufferedMetrics(timestamp=7)]),
    ],
    "HeartbeatResponse": [
        ("config_update_available", b"\x08\x01", True),
        ("latest_config_version", b"\x12\x01a", "a"),
        ("actions", b"\x1a\x02\x08\x03", [fleet_pb2.PendingAction(type=fleet_pb2.PendingAction.DRAIN)]),
        ("token", b"\x22\x01a", "a"),
        ("token_expires_at", b"\x28" + LARGE_BYTES, LARGE),
    ],
    "DeregisterRequest": [*INSTANCE_AND_TOKEN, ("reason", b"\x1a\x01a", "a")],
    "DeregisterResponse": [("acknowledged", b"\x08\x01", True)],
    "InstanceStatus": [
        ("state", b"\x08\x03", fleet_pb2.InstanceStatus.UNHEALTHY),
        ("message", b"\x12\x01a", "a"),
        ("uptime_seconds", b"\x18" + LARGE_BYTES, LARGE),
        ("active_connections", b"\x20" + MINUS_ONE, -1),
    ],
    "InstanceMetrics": [
        ("requests_total", b"\x08" + LARGE_BYTES, LARGE),
        ("requests_failed", b"\x10" + LARGE_BYTES, LARGE),
        ("latency_p50_ms", b"\x19" + ONE_AND_A_HALF, 1.5),
        ("latency_p99_ms", b"\x21" + ONE_AND_A_HALF, 1.5),
        ("bytes_sent", b"\x28" + LARGE_BYTES, LARGE),
        ("bytes_received", b"\x30" + LARGE_BYTES, LARGE),
    ],
    "BufferedMetrics": [
        ("timestamp", b"\x08" + LARGE_BYTES, LARGE),
        ("metrics", b"\x12\x02\x08\x05", fleet_pb2.InstanceMetrics(requests_total=5)),
    ],
    "SubscribeRequest": [*INSTANCE_AND_TOKEN],
    "Event": [
        ("event_id", b"\x0a\x01a", "a"),
        ("type", b"\x10\x04", fleet_pb2.Event.PING),
        ("timestamp", b"\x18" + LARGE_BYTES, LARGE),
        ("config_update", b"\x22\x03\x0a\x01a", fleet_pb2.ConfigUpdateEvent(config_version="a")),
        ("deployment", b"\x2a\x03\x0a\x01a", fleet_pb2.DeploymentEvent(deployment_id="a")),
        ("drain", b"\x32\x02\x08\x05", fleet_pb2.DrainEvent(drain_timeout_seconds=5)),
        ("ping", b"\x3a\x02\x08\x05", fleet_pb2.PingEvent(server_time=5)),
    ],
    "ConfigUpdateEvent": [
        ("config_version", b"\x0a\x01a", "a"),
        ("config_hash", b"\x12\x01a", "a"),
        ("change_summary", b"\x1a\x01a", "a"),
    ],
    "DeploymentEvent": [
        ("deployment_id", b"\x0a\x01a", "a"),
        ("config_version", b"\x12\x01a", "a"),
        ("strategy", b"\x18\x02", fleet_pb2.CANARY),
        ("batch_position", b"\x20" + MINUS_ONE, -1),
        ("batch_total", b"\x28" + MINUS_ONE, -1),
        ("deadline", b"\x30" + LARGE_BYTES, LARGE),
        ("rollback", b"\x38\x01", True),
        ("config_id", b"\x42\x01a", "a"),
        ("config_hash", b"\x4a\x01a", "a"),
    ],
    "DrainEvent": [("drain_timeout_seconds", b"\x08" + MINUS_ONE, -1), ("reason", b"\x12\x01a", "a")],
    "PingEvent": [("server_time", b"\x08" + LARGE_BYTES, LARGE)],
    "PendingAction": [
        ("type", b"\x08\x03", fleet_pb2.PendingAction.DRAIN),
        ("action_id", b"\x12\x01a", "a"),
        ("params", b"\x1a\x06\x0a\x01k\x12\x01v", {"k": "v"}),
    ],
    "GetConfigRequest": [*INSTANCE_AND_TOKEN, ("version", b"\x1a\x01a", "a")],
    "GetConfigResponse": [
        ("version", b"\x0a\x01a", "a"),
        ("hash", b"\x12\x01a", "a"),
        ("content", b"\x1a\x01a", "a"),
        ("created_at", b"\x20" + LARGE_BYTES, LARGE),
        ("config_id", b"\x2a\x01a", "a"),
        ("secrets", b"\x32\x06\x0a\x01k\x12\x01v", {"k": b"v"}),
    ],
    "GetConfigVersionRequest": [
        *INSTANCE_AND_TOKEN,
        ("config_id", b"\x1a\x01a", "a"),
        ("version_number", b"\x20" + MINUS_ONE, -1),
    ],
    "GetConfigVersionResponse": [
        ("config_id", b"\x0a\x01a", "a"),
        ("version_number", b"\x10" + MINUS_ONE, -1),
        ("hash", b"\x1a\x01a", "a"),
        ("content", b"\x22\x01a", "a"),
        ("change_summary", b"\x2a\x01a", "a"),
        ("created_at", b"\x30" + LARGE_BYTES, LARGE),
        ("secrets", b"\x3a\x06\x0a\x01k\x12\x01v", {"k": b"v"}),
    ],
    "AckDeploymentRequest": [
        *INSTANCE_AND_TOKEN,
        ("deployment_id", b"\x1a\x01a", "a"),
        ("accepted", b"\x20\x01", True),
        ("rejection_reason", b"\x2a\x01a", "a"),
        ("rollback", b"\x30\x01", True),
    ],
    "AckDeploymentResponse": [("acknowledged", b"\x08\x01", True), ("instruction", b"\x12\x01a", "a")],
    "DeploymentStatusRequest": [
        *INSTANCE_AND_TOKEN,
        ("deployment_id", b"\x1a\x01a", "a"),
        ("state", b"\x20\x05", fleet_pb2.DeploymentStatusRequest.ROLLED_BACK),
        ("message", b"\x2a\x01a", "a"),
        ("error_details", b"\x32\x01a", "a"),
        ("rollback", b"\x38\x01", True),
    ],
    "DeploymentStatusResponse": [("acknowledged", b"\x08\x01", True), ("next_action", b"\x12\x01a", "a")],
}

ENUMS = {
    "DeploymentStrategy": {"ALL_AT_ONCE": 0, "ROLLING": 1, "CANARY": 2},
    "InstanceStatus.State": {"UNKNOWN": 0, "HEALTHY": 1, "DEGRADED": 2, "UNHEALTHY": 3},
    "Event.EventType": {"UNKNOWN": 0, "CONFIG_UPDATE": 1, "DEPLOYMENT": 2, "DRAIN": 3, "PING": 4},
    "PendingAction.ActionType": {"FETCH_CONFIG": 0, "APPLY_CONFIG": 1, "REPORT_STATUS": 2, "DRAIN": 3},
    "DeploymentStatusRequest.DeploymentState": {
        "PENDING": 0,
        "IN_PROGRESS": 1,
        "VALIDATING": 2,
        "COMPLETED": 3,
        "FAILED": 4,
        "ROLLED_BACK": 5,
    },
}

ENUM_FIELDS = {
    "InstanceStatus.state": "InstanceStatus.State",
    "Event.type": "Event.EventType",
    "DeploymentEvent.strategy": "DeploymentStrategy",
    "PendingAction.type": "PendingAction.ActionType",
    "DeploymentStatusRequest.state": "DeploymentStatusRequest.DeploymentState",
}

METHODS = {
    "Register": ("RegisterRequest", "RegisterResponse", False),
    "Heartbeat": ("HeartbeatRequest", "HeartbeatResponse", False),
    "Deregister": ("DeregisterRequest", "DeregisterResponse", False),
    "GetConfig": ("GetConfigRequest", "GetConfigResponse", False),
    "GetConfigVersion": ("GetConfigVersionRequest", "GetConfigVersionResponse", False),
    "Subscribe": ("SubscribeRequest", "Event", True),
    "AckDeployment": ("AckDeploymentRequest", "AckDeploymentResponse", False),
    "ReportDeploymentStatus": ("DeploymentStatusRequest", "DeploymentStatusResponse", False),
}
"""Request, response, and whether the response is a stream."""

ROWS = [(message, *row) for message, rows in FIELDS.items() for row in rows]
INT32_FIELDS = [(message, field) for message, field, _, value in ROWS if value == -1]


def message_type(name: str) -> type[Message]:
    found: type[Message] = getattr(fleet_pb2, name)
    return found


def plain(value: Any) -> object:
    """Return lists and maps of protobuf as those of Python."""
    if isinstance(value, Message | str | bytes) or not hasattr(value, "__len__"):
        return value
    return dict(value) if hasattr(value, "keys") else list(value)


@pytest.mark.parametrize(("message", "field", "encoded", "value"), ROWS)
def test_a_field_is_decoded_by_its_number_and_type(
    message: str, field: str, encoded: bytes, value: object
) -> None:
    decoded = message_type(message).FromString(encoded)

    found = plain(getattr(decoded, field))
    assert [descriptor.name for descriptor, _ in decoded.ListFields()] == [field]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("message", "field", "encoded", "value"), ROWS)
def test_a_field_is_encoded_with_its_number_and_type(
    message: str, field: str, encoded: bytes, value: object
) -> None:
    made = message_type(message)(**{field: value})

    assert made.SerializeToString(deterministic=True) == encoded


@pytest.mark.parametrize(("message", "field"), INT32_FIELDS)
def test_a_field_of_32_bits_refuses_a_larger_number(message: str, field: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        message_type(message)(**{field: LARGE})


def test_every_field_of_every_message_is_pinned() -> None:
    declared = {
        name: [field.name for field in sorted(descriptor.fields, key=field_number)]
        for name, descriptor in fleet_pb2.DESCRIPTOR.message_types_by_name.items()
    }

    assert declared == {name: [field for field, _, _ in rows] for name, rows in FIELDS.items()}


def test_every_enumeration_has_its_values() -> None:
    declared = {
        enum.full_name.removeprefix("sentinel.hub.v1."): {value.name: value.number for value in enum.values}
        for enum in enumerations()
    }

    assert declared == ENUMS


def test_every_enumerated_field_has_its_enumeration() -> None:
    declared = {
        f"{name}.{field.name}": field.enum_type.full_name.removeprefix("sentinel.hub.v1.")
        for name, descriptor in fleet_pb2.DESCRIPTOR.message_types_by_name.items()
        for field in descriptor.fields
        if field.enum_type is not None
    }

    assert declared == ENUM_FIELDS


def test_the_service_has_its_methods() -> None:
    service = fleet_pb2.DESCRIPTOR.services_by_name["FleetService"]

    declared = {
        method.name: (method.input_type.name, method.output_type.name, method.server_streaming)
        for method in service.methods
    }
    assert service.full_name == "sentinel.hub.v1.FleetService"
    assert declared == METHODS
    assert not any(method.client_streaming for method in service.methods)
    assert all(hasattr(fleet_pb2_grpc.FleetServiceServicer, name) for name in METHODS)


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.permutations(["config_update", "deployment", "drain", "ping"], 2))
)
def test_an_event_has_one_payload(first: str, second: str) -> None:
    bytes_of = {field: encoded for field, encoded, _ in FIELDS["Event"]}

    event = fleet_pb2.Event.FromString(bytes_of[first] + bytes_of[second])

    assert event.WhichOneof("payload") == second


@pytest.mark.parametrize("message", FIELDS)
def test_a_field_of_a_newer_version_is_ignored(message: str) -> None:
    newer = b"\xa2\x06\x05hello"  # field 100, text

    decoded = message_type(message).FromString(newer)

    assert decoded.ListFields() == []


def test_a_value_of_a_newer_enumeration_is_no_error() -> None:
    event = fleet_pb2.Event.FromString(b"\x10\x63")

    assert int(event.type) == 99


@pytest.mark.parametrize("message", FIELDS)
@given(data=st.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(message: str, data: bytes) -> None:
    try:
        decoded = message_type(message).FromString(data)
    except DecodeError:
        return

    again = message_type(message).FromString(decoded.SerializeToString())
    # Encoded: NaN is not equal to itself.
    assert again.SerializeToString(deterministic=True) == decoded.SerializeToString(deterministic=True)


def field_number(field: FieldDescriptor) -> int:
    return field.number


def enumerations() -> Iterator[EnumDescriptor]:
    yield from fleet_pb2.DESCRIPTOR.enum_types_by_name.values()
    for message in fleet_pb2.DESCRIPTOR.message_types_by_name.values():
        yield from message.enum_types
