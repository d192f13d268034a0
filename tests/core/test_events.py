"""CloudEvents in both modes, read back with the CloudEvents SDK."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.formats.json import JSONFormat

from sentinel.core import events
from sentinel.core.events import Event, Mode

EVENT = Event(
    id="0199f0a0-0000-7000-8000-000000000000",
    type="com.redhat.hyperfleet.cluster.reconcile",
    subject="cls-123",
    time="2025-10-21T12:00:00Z",
    data=msgspec.Raw(b'{"resource_id":"cls-123"}'),
)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_structured_event_is_read_by_the_sdk() -> None:
    headers = {"content-type": events.content_type(Mode.STRUCTURED)}

    read = from_http_event(HTTPMessage(headers, events.body(EVENT, Mode.STRUCTURED)), JSONFormat())

    assert read.get_specversion() == "1.0"
    assert read.get_id() == EVENT.id
    assert read.get_source() == "hyperfleet-sentinel"
    assert read.get_type() == EVENT.type
    assert read.get_subject() == "cls-123"
    assert read.get_time() == datetime(2025, 10, 21, 12, tzinfo=UTC)
    assert read.get_datacontenttype() == "application/json"
    assert read.get_data() == {"resource_id": "cls-123"}


def test_a_binary_event_is_read_by_the_sdk() -> None:
    attributes = events.attributes(EVENT)
    headers = {f"ce-{name}": value for name, value in attributes.items() if name != "datacontenttype"}
    headers["content-type"] = events.content_type(Mode.BINARY)

    read = from_http_event(HTTPMessage(headers, events.body(EVENT, Mode.BINARY)), JSONFormat())

    assert read.get_type() == EVENT.type
    assert read.get_subject() == "cls-123"
    assert read.get_data() == {"resource_id": "cls-123"}


def test_a_traceparent_is_an_extension_if_there_is_one() -> None:
    traced = msgspec.structs.replace(EVENT, traceparent=TRACEPARENT)

    assert msgspec.json.decode(events.structured(traced))["traceparent"] == TRACEPARENT
    assert events.attributes(traced)["traceparent"] == TRACEPARENT
    assert "traceparent" not in msgspec.json.decode(events.structured(EVENT))
    assert "traceparent" not in events.attributes(EVENT)


def test_the_type_names_the_kind() -> None:
    assert events.event_type("Cluster", "clusters") == "com.redhat.hyperfleet.cluster.reconcile"
    assert events.event_type("NodePool", "nodepools") == "com.redhat.hyperfleet.nodepool.reconcile"


@pytest.mark.parametrize(
    ("resource_type", "singular"),
    [
        ("nodepools", "nodepool"),
        ("policies", "policy"),
        ("addresses", "address"),
        ("buses", "bus"),
        ("boxes", "box"),
        ("ingress", "ingress"),
        ("fleet", "fleet"),
        ("s", "s"),
    ],
)
def test_without_a_kind_the_type_names_the_singular(resource_type: str, singular: str) -> None:
    event_type = events.event_type("", resource_type)

    assert event_type == f"com.redhat.hyperfleet.{singular}.reconcile"
