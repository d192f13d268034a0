"""Metrics of an operator that corrects drift.

The kind of the resource is written by the sidecar, so it is counted by name only if it is one of the kinds that
the operator knows. Otherwise a sidecar could create any number of series.

All counters of an object exist from the start, because Prometheus sees no increase in a series that begins with 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from sentinel.core.kube.objects import ObjectReference

OTHER: Final = "other"
_LABELS: Final = ("namespace", "name")


class DriftMetrics:
    """The metric families of all objects that an operator manages."""

    def __init__(self, registry: CollectorRegistry, *, kinds: Iterable[str], prefix: str = "openbao_") -> None:
        """`kinds` are the kinds of resources that are counted by name; all others are `other`."""
        self._kinds = frozenset(kinds)
        self._detected = Counter(
            f"{prefix}drift_detected_total",
            "Triggers that were found, by the kind of the resource that drifted. One that is sent again before it"
            " was handled is counted once.",
            (*_LABELS, "resource_kind"),
            registry=registry,
        )
        self._corrected = Counter(
            f"{prefix}drift_corrected_total", "Triggers that were handled.", _LABELS, registry=registry
        )
        self._unhandled = Gauge(
            f"{prefix}drift_unhandled",
            "1 while a trigger was found and is not handled yet, otherwise 0.",
            _LABELS,
            registry=registry,
        )
        self._last_detected = Gauge(
            f"{prefix}drift_last_detected_timestamp",
            "When drift was last detected, in seconds since 1970.",
            _LABELS,
            registry=registry,
        )

    def add(self, reference: ObjectReference) -> None:
        """Create the series of an object. Changes nothing if they exist."""
        labels = reference.namespace, reference.name
        for family in (self._corrected, self._unhandled):
            family.labels(*labels)
        for kind in (*self._kinds, OTHER):
            self._detected.labels(*labels, kind)

    def detected(self, reference: ObjectReference, kind: str, time: datetime) -> None:
        """Count a trigger that was found."""
        labels = reference.namespace, reference.name
        self._detected.labels(*labels, kind if kind in self._kinds else OTHER).inc()
        self._last_detected.labels(*labels).set(time.timestamp())

    def corrected(self, reference: ObjectReference) -> None:
        """Count a trigger that was handled."""
        self._corrected.labels(reference.namespace, reference.name).inc()

    def set_unhandled(self, reference: ObjectReference, *, is_unhandled: bool) -> None:
        """Say whether a trigger was found that is not handled yet."""
        self._unhandled.labels(reference.namespace, reference.name).set(int(is_unhandled))

    def forget(self, reference: ObjectReference) -> None:
        """Remove the series of an object that was deleted."""
        labels = reference.namespace, reference.name
        for family in (self._corrected, self._unhandled, self._last_detected):
            _remove(family, *labels)
        for kind in (*self._kinds, OTHER):
            _remove(self._detected, *labels, kind)


def _remove(family: Counter | Gauge, *labels: str) -> None:
    with suppress(KeyError):  # nothing was counted
        family.remove(*labels)
