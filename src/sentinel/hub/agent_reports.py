"""What agents tell about themselves, checked.

Register refuses what is invalid. A heartbeat never fails because of what it reports: what cannot be stored is cut,
because losing a whole heartbeat would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sentinel.core.hub import versions
from sentinel.core.hub.instance import Health
from sentinel.core.hub.metrics_samples import Metrics, Sample
from sentinel.core.identity_names import is_instance_id
from sentinel.core.labels import check_labels
from sentinel.hub.refusals import invalid

_MAX_NAME: Final = 256
_MAX_TEXT: Final = 1024
_MAX_CAPABILITIES: Final = 32
_MAX_CAPABILITY: Final = 64
_MAX_HASH: Final = 128

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about its instance when it registers."""

    instance_id: str
    name: str
    hostname: str = ""
    agent_version: str = ""
    sentinel_version: str = ""
    labels: Mapping[str, str] = {}
    capabilities: Sequence[str] = ()

    def check(self) -> None:
        """Raise `CallRefused` if a field is invalid."""
        if not is_instance_id(self.instance_id):
            raise invalid("instance_id: expected letters, digits and ._~- only, at most 128")
        if not self.name.strip():
            raise invalid("instance_name: expected a name, got an empty text")
        texts = {
            "instance_name": self.name,
            "hostname": self.hostname,
            "agent_version": self.agent_version,
            "sentinel_version": self.sentinel_version,
        }
        for field, text in texts.items():
            _check_text(field, text, _MAX_NAME)
        if len(self.capabilities) > _MAX_CAPABILITIES:
            raise invalid(f"capabilities: expected at most {_MAX_CAPABILITIES}, got {len(self.capabilities)}")
        for capability in self.capabilities:
            _check_text("capabilities", capability, _MAX_CAPABILITY)
        for field, problem in check_labels(self.labels):
            raise invalid(f"{field}: {problem}")


class ReportedHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The status in a heartbeat."""

    health: Health = Health.UNKNOWN
    message: str = ""
    uptime_seconds: int = 0
    active_connections: int = 0


class HeartbeatReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent reports with a heartbeat."""

    status: ReportedHealth | None = None
    """None: nothing changed."""
    version: str = ""
    hash: str = ""
    metrics: Metrics | None = None
    buffered: Sequence[Sample] = ()

    @property
    def message(self) -> str:
        return "" if self.status is None else clean(self.status.message, _MAX_TEXT)

    @property
    def health(self) -> Health:
        return Health.UNKNOWN if self.status is None else self.status.health

    @property
    def running_version(self) -> str:
        """The version that runs; empty if it is none of ours."""
        named = versions.parse(self.version)
        return "" if named is None else str(named)

    @property
    def running_hash(self) -> str:
        return clean(self.hash, _MAX_HASH)


def clean(text: str, limit: int = _MAX_TEXT) -> str:
    """Return the text without control characters, which databases and terminals do not take, and cut."""
    return _CONTROL.sub(" ", text[:limit])


def _check_text(field: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise invalid(f"{field}: expected at most {limit} characters, got {len(text)}")
    if _CONTROL.search(text):
        raise invalid(f"{field}: expected no control characters")
