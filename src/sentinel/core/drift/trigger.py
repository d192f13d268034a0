"""The trigger: what a sidecar writes to its cluster, and what the cluster's annotations say to the sidecar.

A trigger is a time and the object that drifted first. The time is also the trigger's identity: the operator
clears exactly the one that it handled. So each is later than the one before, even if the clock was set back or the
process was restarted in between: the annotation that is already there counts, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from sentinel.core.drift.rules import AnnotationNames
from sentinel.core.json import Json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000_000
_MICROSECOND = timedelta(microseconds=1)
_LATEST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1) * _SECOND
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,32}))?(?P<offset>[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)

_RESOURCE = re.compile(
    r"[A-Z][A-Za-z0-9]{0,62}/(?P<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
)
"""`KIND/NAMESPACE/NAME`, as the admission policy requires it."""


class DriftMode(StrEnum):
    """What happens on drift."""

    ENFORCE = "enforce"
    """It is reported and the operator is triggered."""
    OBSERVE = "observe"
    """It is only reported."""
    OFF = "off"
    """Nothing is judged."""


_LEAST_FIRST = (DriftMode.OFF, DriftMode.OBSERVE, DriftMode.ENFORCE)
_MODES = {mode.value: mode for mode in DriftMode}


class ClusterView(msgspec.Struct, frozen=True):
    """What a sidecar reads of its cluster."""

    uid: str
    trigger: str = ""
    """The trigger that the operator has not cleared yet."""
    trigger_resource: str = ""
    mode: str = ""
    maintenance_until: str = ""
    is_deleting: bool = False


def read_view(
    annotations: Mapping[str, str], names: AnnotationNames, *, uid: str, is_deleting: bool = False
) -> ClusterView:
    """Return what the annotations of a cluster say."""
    return ClusterView(
        uid=uid,
        trigger=annotations.get(names.trigger, ""),
        trigger_resource=annotations.get(names.trigger_resource, ""),
        mode=annotations.get(names.mode, ""),
        maintenance_until=annotations.get(names.maintenance_until, ""),
        is_deleting=is_deleting,
    )


def merge_patch(names: AnnotationNames, *, value: str, objects: Iterable[str], namespace: str) -> dict[str, Json]:
    """Return the patch that sets a trigger. It contains nothing else, and no policy allows anything else.

    It names the first of `objects`. What a cluster's annotation said earlier may be empty or of any form, which a
    policy refuses, so such a text is left out.
    """
    annotations: dict[str, Json] = {names.trigger: value}
    resource = next((each for each in objects if _is_resource(each, namespace)), None)
    if resource is not None:
        annotations[names.trigger_resource] = resource
    return {"metadata": {"annotations": annotations}}


def _is_resource(text: str, namespace: str) -> bool:
    match = _RESOURCE.fullmatch(text)
    return match is not None and match["namespace"] == namespace


def effective_mode(configured: DriftMode, annotation: str) -> DriftMode:
    """Return the mode in force. An annotation can only make a sidecar do less; an unknown one changes nothing."""
    return min(configured, _MODES.get(annotation, configured), key=_LEAST_FIRST.index)


def problems(view: ClusterView) -> list[str]:
    """Return what is wrong with the annotations that people write."""
    found = []
    if view.mode and view.mode not in _MODES:
        found.append(f'mode: expected one of {", ".join(DriftMode)}, got "{view.mode[:64]}"')
    if view.maintenance_until and maintenance_end(view) is None:
        found.append(f'maintenance: expected a time in RFC 3339, got "{view.maintenance_until[:64]}"')
    return found


def maintenance_end(view: ClusterView) -> datetime | None:
    """Return until when nothing is triggered. None if there is no such time, or it cannot be read."""
    nanoseconds = parse_time(view.maintenance_until)
    if nanoseconds is None:
        return None
    return _EPOCH + min(max(nanoseconds, 0), _LATEST) // 1000 * _MICROSECOND


def next_value(now: datetime, previous: Iterable[str]) -> str:
    """Return the time of a new trigger: now, or a nanosecond after the latest of `previous`.

    Values that are not times do not count.
    """
    known = [time for time in map(parse_time, previous) if time is not None]
    time = (now - _EPOCH) // _MICROSECOND * 1000
    latest = max(known, default=-1)
    if time <= latest < _LATEST:  # after the last second of year 9999 nothing can be later
        time = latest + 1
    return format_time(time)


def format_time(nanoseconds: int) -> str:
    """Return a time since 1970 in RFC 3339 and UTC, with nanoseconds."""
    seconds, fraction = divmod(nanoseconds, _SECOND)
    whole = _EPOCH + timedelta(seconds=seconds)
    return f"{whole.replace(tzinfo=None).isoformat()}.{fraction:09}Z"


def parse_time(text: str) -> int | None:
    """Return a time in RFC 3339 as nanoseconds since 1970. None if it is not such a time."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    offset = match["offset"].upper().replace("Z", "+00:00")
    try:
        whole = datetime.fromisoformat(f"{match['date']}T{match['time']}{offset}")
    except ValueError:
        return None
    nanoseconds = int((match["fraction"] or "")[:9].ljust(9, "0"))
    return (whole - _EPOCH) // timedelta(seconds=1) * _SECOND + nanoseconds
