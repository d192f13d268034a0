"""What the operator hands to the wiring to build the pulse of a SentinelConfig, and the election of its leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from sentinel.core.pulse.pacing import Pacer
from sentinel.operator.resolve import ResolvedConfig
from sentinel.ports.fleet_stream import StreamPosition
from sentinel.ports.publisher import Publisher
from sentinel.pulse.report import PulseObserver
from sentinel.pulse.telemetry import PulseSeries
from sentinel.runtime.kube.leader_election import LeaderCallbacks, LeaderElector
from sentinel.runtime.lifecycle.part import Part


class PulsePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pulse of a SentinelConfig is built from."""

    name: str
    """The name of the SentinelConfig."""
    config: ResolvedConfig
    pacer: Pacer
    stream_position: StreamPosition
    series: PulseSeries
    observer: PulseObserver
    """Gets the reports of the pulse, beside its telemetry."""
    may_publish: Callable[[], bool]
    publishers: set[Publisher]
    """The publishers of the SentinelConfig, which abandon their events before another process may lead. The one of
    the pulse is added when it is built and removed when it is closed."""


BuildPulse: TypeAlias = Callable[[PulsePlan], Part]
BuildElector: TypeAlias = Callable[[str, LeaderCallbacks], LeaderElector]
"""Builds the election of the leader of the SentinelConfig with this name."""
