"""The API server's audit log as values, so that a test can say which requests an account made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

AUDIT_POLICY = msgspec.json.encode(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
)
"""Every request, without bodies."""

_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_POLL_INTERVAL = timedelta(milliseconds=20)
_TIMEOUT = timedelta(seconds=10)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Fields are empty where they do not apply."""

    user: str
    """Who authenticated, such as `system:serviceaccount:<namespace>:<name>`."""
    verb: str
    """RBAC's verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`."""
    uri: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    """The HTTP status."""
    user_agent: str
    credential: str
    """The identity of the token, such as `JTI=<jti>`."""
    is_complete: bool
    """False while a watch is open."""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


class _ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    verb: str
    user: _User
    request_uri: str = msgspec.field(name="requestURI")
    user_agent: str = ""
    object_ref: _ObjectReference = _ObjectReference()
    response_status: _ResponseStatus = _ResponseStatus()


class AuditLog:
    """Reads what is written after its creation.

    The server writes an entry about when it responds, so a client may see the response first: `wait_for` waits.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = file.stat().st_size if file.exists() else 0
        self._decoder = msgspec.json.Decoder(_Event)
        self._entries: dict[str, AuditEntry] = {}

    def entries(self, *, user: str = "") -> list[AuditEntry]:
        """One entry for each request so far, by one user or by all, in the order in which responses began."""
        self._read()
        return [entry for entry in self._entries.values() if user in ("", entry.user)]

    async def wait_for(self, matches: Callable[[AuditEntry], bool]) -> AuditEntry:
        """Return the first entry that matches, when it is there. Raises `TimeoutError` after 10 seconds."""
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            while True:
                for entry in self.entries():
                    if matches(entry):
                        return entry
                await asyncio.sleep(_POLL_INTERVAL.total_seconds())

    def _read(self) -> None:
        if not self._file.exists():
            return
        with self._file.open("rb") as log:
            log.seek(self._offset)
            written = log.read()
        # The last line may be incomplete.
        complete = written[: written.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            event = self._decoder.decode(line)
            # A watch has two events: when it begins, and when it ends.
            self._entries[event.audit_id] = _entry(event)


def _entry(event: _Event) -> AuditEntry:
    return AuditEntry(
        user=event.user.username,
        verb=event.verb,
        uri=event.request_uri,
        group=event.object_ref.api_group,
        resource=event.object_ref.resource,
        subresource=event.object_ref.subresource,
        namespace=event.object_ref.namespace,
        name=event.object_ref.name,
        code=event.response_status.code,
        user_agent=event.user_agent,
        credential=next(iter(event.user.extra.get(_CREDENTIAL, ())), ""),
        is_complete=event.stage != "ResponseStarted",
    )
