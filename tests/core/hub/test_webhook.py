from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime

from sentinel.core.hub import webhook

TIME = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)


def test_an_event_is_a_structured_cloud_event() -> None:
    body = webhook.body("deployment.state", number=7, subject="d-1", time=TIME, data=b'{"id":"d-1"}')

    assert json.loads(body) == {
        "specversion": "1.0",
        "type": "sentinel.hub.deployment.state",
        "source": "sentinel-hub",
        "id": "7",
        "time": "2026-03-01T12:00:00.500000Z",
        "subject": "d-1",
        "datacontenttype": "application/json",
        "data": {"id": "d-1"},
    }


def test_an_event_without_data_has_an_empty_object() -> None:
    assert json.loads(webhook.body("x", number=1, subject="s", time=TIME, data=b""))["data"] == {}


def test_the_signature_covers_the_time_and_the_body() -> None:
    value = webhook.signature(b"key", b'{"a":1}', TIME)

    seconds = int(TIME.timestamp())
    expected = hmac.new(b"key", f'{seconds}.{{"a":1}}'.encode(), hashlib.sha256).hexdigest()
    assert value == f"t={seconds},v1={expected}"
