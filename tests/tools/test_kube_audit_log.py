"""The audit log as values: one for each request, also while the server is still writing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools.services.kube_apiserver import AuditLog

ACCOUNT = "system:serviceaccount:one:operator"


def line(audit_id: str, **changes: Any) -> bytes:
    event = {
        "kind": "Event",
        "level": "Metadata",
        "auditID": audit_id,
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/one/configmaps/a/status",
        "verb": "patch",
        "user": {"username": ACCOUNT, "groups": ["system:authenticated"]},
        "userAgent": "test",
        "objectRef": {"resource": "configmaps", "namespace": "one", "name": "a", "subresource": "status"},
        "responseStatus": {"metadata": {}, "code": 403},
    }
    return msgspec.json.encode(event | changes) + b"\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def test_an_entry_says_who_did_what_to_which_object(file: Path) -> None:
    log = AuditLog(file)
    file.write_bytes(line("1"))

    (entry,) = log.entries()

    assert (entry.user, entry.verb, entry.code, entry.is_complete) == (ACCOUNT, "patch", 403, True)
    assert (entry.group, entry.resource, entry.subresource) == ("", "configmaps", "status")
    assert (entry.namespace, entry.name) == ("one", "a")
    assert entry.uri == "/api/v1/namespaces/one/configmaps/a/status"


def test_what_was_written_before_is_left_out(file: Path) -> None:
    file.write_bytes(line("1"))
    log = AuditLog(file)

    assert log.entries() == []


def test_a_missing_log_is_empty(file: Path) -> None:
    assert AuditLog(file).entries() == []


def test_an_incomplete_line_is_read_when_it_is_complete(file: Path) -> None:
    log = AuditLog(file)
    whole = line("1") + line("2")
    file.write_bytes(whole[:-20])
    assert len(log.entries()) == 1

    file.write_bytes(whole)

    assert len(log.entries()) == 2


def test_a_watch_is_one_entry_that_becomes_complete(file: Path) -> None:
    log = AuditLog(file)
    begins = line("1", verb="watch", stage="ResponseStarted", responseStatus={"code": 200})
    file.write_bytes(begins)
    (watching,) = log.entries()

    file.write_bytes(begins + line("1", verb="watch", responseStatus={"code": 200}))

    (ended,) = log.entries()
    assert (watching.is_complete, ended.is_complete) == (False, True)


def test_entries_of_one_user(file: Path) -> None:
    log = AuditLog(file)
    file.write_bytes(line("1") + line("2", user={"username": "admin"}) + line("3"))

    assert len(log.entries(user=ACCOUNT)) == 2
    assert len(log.entries(user="admin")) == 1


def test_a_request_without_an_object_has_a_uri_only(file: Path) -> None:
    log = AuditLog(file)
    event = msgspec.json.decode(line("1", requestURI="/readyz", verb="get"))
    del event["objectRef"]
    file.write_bytes(msgspec.json.encode(event) + b"\n")

    (entry,) = log.entries()

    assert (entry.uri, entry.resource, entry.name) == ("/readyz", "", "")


async def test_an_entry_is_awaited_until_it_is_written(file: Path) -> None:
    log = AuditLog(file)
    waiting = asyncio.create_task(log.wait_for(lambda entry: entry.code == 200))
    await asyncio.sleep(0)

    await asyncio.to_thread(file.write_bytes, line("1") + line("2", verb="get", responseStatus={"code": 200}))

    assert (await waiting).verb == "get"
