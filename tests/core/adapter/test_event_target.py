"""Which resource a received event is about."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec
import pytest

from sentinel.core.adapter import event_target
from sentinel.core.adapter.event_target import EventTarget, InvalidEvent, ResourceRef
from sentinel.core.json import Json

STRUCTURED = "application/cloudevents+json; charset=utf-8"
ATTRIBUTES = {
    "specversion": "1.0",
    "id": "e1",
    "source": "hyperfleet-sentinel",
    "type": "com.redhat.hyperfleet.cluster.reconcile",
    "time": "2025-10-17T10:00:00Z",
}


def read(
    data: Json = None,
    *,
    content_type: str = "application/json",
    body: bytes | None = None,
    **attributes: str,
) -> EventTarget:
    given: Mapping[str, str] = ATTRIBUTES | attributes
    encoded = msgspec.json.encode(data) if body is None else body
    return event_target.read(body=encoded, content_type=content_type, attributes=given)


def test_the_subject_is_the_resource() -> None:
    target = read({"anything": 1}, subject="c1")

    assert target.ref == ResourceRef("c1", "", "cluster")
    assert target.event.id == "e1"
    assert target.event.source == "hyperfleet-sentinel"
    assert target.event.data == {"anything": 1}
    assert target.event.attributes["time"] == "2025-10-17T10:00:00Z"


@pytest.mark.parametrize("name", ["id", "resource_id", "resourceId"])
def test_without_a_subject_the_data_names_the_resource(name: str) -> None:
    assert read({name: "c1"}).ref.id == "c1"


def test_the_data_may_have_the_href_and_kind() -> None:
    target = read({"id": "c1", "href": "/api/hyperfleet/v1/clusters/c1", "kind": "Cluster"}, type="other.event")

    assert target.ref == ResourceRef("c1", "/api/hyperfleet/v1/clusters/c1", "Cluster")


@pytest.mark.parametrize("kind", ["../../admin?x=", "a b", "a\r\nEvil: 1", "é", "a#b", "..", "x" * 200])
def test_a_kind_that_is_not_a_url_segment_is_dropped(kind: str) -> None:
    assert read({"id": "c1", "kind": kind}, type="other.event").ref == ResourceRef("c1")


def test_in_structured_mode_the_data_is_a_member_of_the_body() -> None:
    target = read({**ATTRIBUTES, "data": {"id": "c1"}}, content_type=STRUCTURED)

    assert target.ref.id == "c1"


def test_a_structured_event_is_recognized_without_its_content_type() -> None:
    target = read({**ATTRIBUTES, "data": {"id": "c1"}}, content_type="")

    assert target.ref.id == "c1"


def test_data_may_be_in_base64() -> None:
    encoded = base64.b64encode(b'{"id": "c1"}').decode()

    assert read({**ATTRIBUTES, "data_base64": encoded}, content_type=STRUCTURED).ref.id == "c1"


@pytest.mark.parametrize(
    "body",
    [
        b"[1]",
        b"not json",
        b'{"data_base64": "***"}',
        b'{"data_base64": "\xc3\xa9"}',
        b'{"data_base64": "bm90IGpzb24="}',
        b"{}",
    ],
)
def test_unreadable_data_does_not_matter_with_a_subject(body: bytes) -> None:
    target = read(body=body, content_type=STRUCTURED, subject="c1")

    assert target.ref.id == "c1"
    assert target.event.data is None


def test_a_message_without_attributes_is_invalid() -> None:
    with pytest.raises(InvalidEvent, match="expected a CloudEvent"):
        event_target.read(body=b'{"id": "c1"}', content_type="application/json", attributes={})


@pytest.mark.parametrize("data", [None, [], {}, {"id": ""}, {"id": 5}, {"name": "c1"}])
def test_an_event_that_names_no_resource_is_invalid(data: Json) -> None:
    with pytest.raises(InvalidEvent, match="expected a resource's id as the subject"):
        read(data)


@pytest.mark.parametrize("subject", ["..", "a/b", "a?b", "a b", "ä", "x" * 129, "a\n"])
def test_an_event_with_an_invalid_id_is_invalid(subject: str) -> None:
    with pytest.raises(InvalidEvent, match="letters, digits"):
        read({}, subject=subject)


def test_the_type_of_a_reconcile_event_names_the_kind() -> None:
    assert event_target.kind_of("com.redhat.hyperfleet.cluster.reconcile") == "cluster"
    assert event_target.kind_of("com.redhat.hyperfleet.NodePool.reconcile.v1") == "nodepool"


@pytest.mark.parametrize("event_type", ["com.redhat.hyperfleet.cluster.deleted", "cluster.reconcile", ""])
def test_the_type_of_another_event_names_no_kind(event_type: str) -> None:
    assert event_target.kind_of(event_type) == ""
