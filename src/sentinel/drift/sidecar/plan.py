"""What the sidecar of one cluster does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from sentinel.core.drift.debounce import Debounce
from sentinel.core.drift.rules import Rules
from sentinel.core.drift.trigger import DriftMode
from sentinel.ports.kube import KubeKind


class DriftPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a sidecar watches, and when it triggers."""

    namespace: str
    cluster: str
    """The name of the target."""
    target: KubeKind
    """The kind of the object that gets the trigger."""
    kinds: Sequence[KubeKind]
    label_selector: str
    rules: Rules
    mode: DriftMode
    debounce: Debounce
    ack_timeout: timedelta
