"""What is stored as JSON. The next version must be able to read these rows, so a change here needs a migration."""

from __future__ import annotations

from sentinel.drivers.sql.hub import rows
from sentinel.drivers.sql.hub.tables import instances, versions
from tests.support.hub.store_records import full_instance, instance, version


def test_an_instance_is_stored_in_this_form() -> None:
    values = rows.instance_values(full_instance("edge-1"))

    assert values["labels"] == b'{"zone":"a","tier":""}'
    assert values["report"] == (
        b'{"message":"two of three upstreams answer, \xc2\xabslowly\xc2\xbb",'
        b'"status":{"version":"api@7","uptime_seconds":1099511627776,"active_connections":12,'
        b'"metrics":{"time":"2026-03-01T12:00:05Z","metrics":{"requests_total":4611686018427387904,'
        b'"requests_failed":0,"latency_p50_ms":0.1,"latency_p99_ms":1e300,"bytes_sent":0,"bytes_received":0}}}}'
    )
    assert values["description"] == (
        b'{"registered":"2026-03-01T12:00:00.000002Z","deployment_id":"dep-1",'
        b'"drain":{"cause":"deregistered","reason":"rebuilt","started":"2026-03-01T12:00:01Z",'
        b'"deadline":"2026-03-01T12:01:00Z"},'
        b'"assignment":{"version":{"config_id":"api","number":8},'
        b'"hash":"abababababababababababababababababababababababababababababababab",'
        b'"assigned":"2026-03-01T12:00:00.000005Z"},'
        b'"hub":"hub-1","owner":"certificate:edge-1","name":"Edge 1 \xe2\x98\x83","hostname":"edge-1.example",'
        b'"capabilities":["reload","drain"],"agent_version":"1.2.3","sentinel_version":"0.6.20"}'
    )


def test_a_version_is_stored_in_this_form() -> None:
    values = rows.version_values(version("api", 2))

    assert values["details"] == (
        b'{"hash":"' + version("api", 2).hash.encode() + b'","change_summary":"change 2 \xe2\x98\x83",'
        b'"restart_required":true,"secrets":["secret:api-cert"],"warnings":["eyJsaW5lIjozfQ=="],'
        b'"created_time":"2026-03-01T12:00:02Z","created_by":"ben"}'
    )
    assert values["content"] == b"content of api@2"


def test_a_row_has_the_order_of_the_columns() -> None:
    values = rows.instance_values(full_instance("edge-1"))

    assert list(values) == instances.c.keys()
    assert list(rows.version_values(version("api", 1))) == versions.c.keys()
    assert rows.to_instance(list(values.values())) == full_instance("edge-1")


def test_fields_of_a_later_version_are_ignored() -> None:
    values = rows.instance_values(instance("edge-1"))
    newer = {
        name: b'{"later":1,' + value[1:]
        if name in ("report", "description") and isinstance(value, bytes)
        else value
        for name, value in values.items()
    }

    assert rows.to_instance(list(newer.values())) == instance("edge-1")
