"""The settings of the fleet API. The docstring of each field is its entry in the reference."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from sentinel.runtime.settings.server import RetentionSettings, ServerSettings


class FleetRetentionSettings(RetentionSettings, frozen=True, kw_only=True):
    """How long old rows are kept."""

    changes: timedelta = timedelta(hours=1)
    """How long changes of resources are kept for streams to go on with. A client that was away for longer has to
    list again."""

    discarded: timedelta = timedelta(days=1)
    """How long discarded reports are kept. At most the 50 newest of each resource are kept."""

    history: timedelta = timedelta(days=90)
    """How long past generations of a resource are kept. The newest is kept as long as the resource exists."""


class FleetApiSettings(ServerSettings, frozen=True, kw_only=True):
    """How the fleet API is served."""

    kinds_file: Path | None = None
    """The file that lists the kinds of resource. Unset: clusters, nodepools (in clusters), manifests, workloads,
    without required adapters."""

    public_condition_names: bool = False
    """Whether `Ready` and `Available` are also served as `Reconciled` and `LastKnownReconciled`, for clients of
    the public API."""

    retention: FleetRetentionSettings = msgspec.field(default_factory=FleetRetentionSettings)
    """How long old rows are kept."""
