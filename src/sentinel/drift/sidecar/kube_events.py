"""An observer that records Kubernetes Events about the cluster, for `kubectl describe`."""

from __future__ import annotations

from collections.abc import Callable

from sentinel.core.drift.schedule import Acknowledged
from sentinel.core.kube.objects import ObjectReference
from sentinel.core.times import timestamp
from sentinel.drift.sidecar.report import ConflictFound, Judged, Triggered, TriggerFailed
from sentinel.runtime.kube.events import EventRecorder, EventType

_MAX_PATHS = 5
_MAX_OBJECTS = 5


class DriftEvents:
    """Records `DriftDetected`, `DriftCorrected` and `DriftConflict`."""

    def __init__(self, recorder: EventRecorder, *, cluster: Callable[[], ObjectReference]) -> None:
        self._recorder = recorder
        self._cluster = cluster

    def judged(self, report: Judged) -> None:
        judgement = report.judgement
        if judgement.is_drift:
            paths = shortened([change.path for change in judgement.changes if change.path], _MAX_PATHS)
            text = f"{judgement.summary} ({judgement.reason})"
            self._record(EventType.WARNING, "DriftDetected", f"{text}: {paths}" if paths else text)

    def triggered(self, report: Triggered) -> None:
        """Record nothing: the annotation itself shows it."""

    def trigger_failed(self, report: TriggerFailed) -> None:
        """Record nothing: a server that does not take a patch takes no Event."""

    def acknowledged(self, report: Acknowledged) -> None:
        objects = [name for name in report.batch.burst.objects if name]
        text = f"the operator restored {shortened(objects, _MAX_OBJECTS) or 'the objects'}"
        self._record(EventType.NORMAL, "DriftCorrected", text)

    def outstanding_changed(self, has_outstanding: bool) -> None:
        """Record nothing."""

    def conflict_found(self, report: ConflictFound) -> None:
        conflict, manager = report.conflict, report.judgement.actor.manager or "unknown"
        text = (
            f"conflict with manager {manager} about {conflict.field.path or '/'}"
            f" of {conflict.field.resource}: corrected {conflict.corrections} times;"
            f" the next correction waits until {timestamp(conflict.until.replace(microsecond=0))}"
        )
        self._record(EventType.WARNING, "DriftConflict", text)

    def relisted(self) -> None:
        """Record nothing."""

    def _record(self, kind: EventType, reason: str, message: str) -> None:
        self._recorder.record(self._cluster(), kind, reason, message)


def shortened(names: list[str], maximum: int) -> str:
    """Return the first names, and how many others there are."""
    shown = ", ".join(names[:maximum])
    return f"{shown} and {len(names) - maximum} more" if len(names) > maximum else shown
