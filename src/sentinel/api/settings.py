"""The settings of the fleet API. The docstring of each field is its entry in the reference."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from sentinel.runtime.settings.server import RetentionSettings, ServerSettings


class FleetRetentionSettings(RetentionSettings, frozen=True, kw_only=True):
    """How long is kept what nobody deletes."""

    discarded: timedelta = timedelta(days=1)
    """How long discarded reports can be read. Of each resource no more than the newest 50 are kept."""

    history: timedelta = timedelta(days=90)
    """How long past generations of a resource can be read; the newest is kept as long as the resource."""


class FleetApiSettings(ServerSettings, frozen=True, kw_only=True):
    """How the fleet API is served."""

    kinds_file: Path | None = None
    """Which kinds of resource are served. Unset: clusters, nodepools (in clusters), manifests, workloads, without
    required adapters."""

    public_condition_names: bool = False
    """Whether `Ready` and `Available` appear a second time, as `Reconciled` and `LastKnownReconciled`, for clients
    of the public API."""

    retention: FleetRetentionSettings = msgspec.field(default_factory=FleetRetentionSettings)
    """How long is kept what nobody deletes."""
