"""Accept, discard or reject an adapter's report.

A report may come late, twice, or with the time of a wrong clock. If every report were stored, an old one could
overwrite a newer one, and work in progress could overwrite a known result. So each report is first compared with
what is stored. A *discarded* report is valid and came too late or too early to matter. A *rejected* report is
invalid: its sender has a bug.

A discarded `Unknown` is not forgotten. The adapter that sent it may have started a job, and needs its own data to
find that job again. So the latest is kept beside the report, as work in progress.

Existing adapters rely on the order of the rules: form, then generation and time, then the mandatory conditions,
then `Unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from sentinel.core.fleet.documents import (
    AVAILABLE,
    MANDATORY,
    AdapterCondition,
    AdapterStatus,
    ConditionStatus,
    DiscardReason,
    Report,
    ReportedCondition,
    WorkInProgress,
)

MAX_ADAPTER_LENGTH = 63
MAX_GENERATION = 2**63 - 1
"""The largest integer that every store can hold."""
MAX_CONDITIONS = 50
MAX_TYPE_LENGTH = 128
MAX_REASON_LENGTH = 256
MAX_MESSAGE_LENGTH = 4096
MAX_DATA_BYTES = 64 * 1024
"""The size limit of `data` and of `metadata`, because all reports of a resource are read and written together."""
MAX_AGE = timedelta(minutes=30)
"""An older report is rejected; one of exactly this age is not."""
MAX_AHEAD = timedelta(minutes=5)
"""How far the clock of an adapter may be ahead of ours."""

_AGE = f"{MAX_AGE // timedelta(minutes=1)} minutes"
_AHEAD = f"{MAX_AHEAD // timedelta(minutes=1)} minutes"
_ADAPTER = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """The report is the latest of its adapter."""

    status: AdapterStatus
    """Replaces the stored status of the adapter."""


class Discarded(msgspec.Struct, frozen=True, tag=True):
    """The report is valid and changes no condition."""

    reason: DiscardReason
    status: AdapterStatus | None = None
    """Of an `Unknown`: the stored status of the adapter with this work in progress, which replaces it."""


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """The report is invalid."""

    errors: tuple[tuple[str, str], ...]
    """The path of each invalid field, such as `conditions[2].type`, and what is wrong with it."""


def admit(
    report: Report, *, generation: int, stored: AdapterStatus | None, now: datetime
) -> Accepted | Discarded | Rejected:
    """Judge a report on a resource at this generation. `stored` is the current status of the adapter."""
    if errors := tuple(_errors(report, now)):
        return Rejected(errors)
    if report.observed_generation > generation:
        return Discarded(DiscardReason.FUTURE_GENERATION)
    if stored is not None:
        newest_generation, newest_time = stored.newest
        if report.observed_generation < newest_generation:
            return Discarded(DiscardReason.STALE_GENERATION)
        # An equal time is accepted: an adapter whose clock ticks in seconds may report twice within one, and the
        # second report is the current one.
        if report.observed_generation == newest_generation and report.observed_time < newest_time:
            return Discarded(DiscardReason.STALE_TIME)
    if missing := [name for name in MANDATORY if report.status_of(name) is None]:
        expected = ", ".join(MANDATORY)
        return Rejected((("conditions", f"expected all of {expected}; missing: {', '.join(missing)}"),))
    # The first report of an adapter is stored, to show that the adapter is working. Aggregation ignores it.
    if report.status_of(AVAILABLE) is ConditionStatus.UNKNOWN and stored is not None:
        return Discarded(DiscardReason.UNKNOWN, _with_work_in_progress(report, stored))
    return Accepted(apply(report, stored))


def apply(report: Report, stored: AdapterStatus | None) -> AdapterStatus:
    """Return the adapter's status after this report, which `admit` has accepted.

    The report replaces all conditions and ends the work in progress. A condition that was there before keeps its
    creation time and, if its status is unchanged, its transition time.
    """
    observed = report.observed_time.astimezone(UTC)
    return AdapterStatus(
        adapter=report.adapter,
        observed_generation=report.observed_generation,
        created_time=observed if stored is None else stored.created_time,
        last_report_time=observed,
        conditions=tuple(
            _applied(condition, None if stored is None else stored.condition(condition.type), observed)
            for condition in report.conditions
        ),
        data=report.data,
        metadata=report.metadata,
    )


def is_adapter_name(name: str) -> bool:
    """Whether the name of an adapter is valid: a safe URL segment that begins and ends with a letter or digit."""
    return len(name) <= MAX_ADAPTER_LENGTH and _ADAPTER.fullmatch(name) is not None


def _with_work_in_progress(report: Report, stored: AdapterStatus) -> AdapterStatus:
    available = next(each for each in report.conditions if each.type == AVAILABLE)
    work = WorkInProgress(
        report.observed_generation,
        report.observed_time.astimezone(UTC),
        available.reason,
        available.message,
        report.data,
    )
    # A first Unknown is stored as the report. When it is sent again, nothing is newer than the report.
    return stored if work == _first_unknown(stored) else msgspec.structs.replace(stored, in_progress=work)


def _first_unknown(stored: AdapterStatus) -> WorkInProgress | None:
    available = stored.condition(AVAILABLE)
    if available is None or available.status is not ConditionStatus.UNKNOWN:
        return None
    return WorkInProgress(
        stored.observed_generation, stored.last_report_time, available.reason, available.message, stored.data
    )


def _applied(
    condition: ReportedCondition, before: AdapterCondition | None, observed: datetime
) -> AdapterCondition:
    is_same = before is not None and before.status is condition.status
    return AdapterCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        created_time=observed if before is None else before.created_time,
        last_transition_time=before.last_transition_time if before is not None and is_same else observed,
    )


def _errors(report: Report, now: datetime) -> Iterator[tuple[str, str]]:
    if not is_adapter_name(report.adapter):
        yield (
            "adapter",
            f"expected 1 to {MAX_ADAPTER_LENGTH} letters, digits, dashes, dots and underscores, "
            "with a letter or digit at both ends",
        )
    if not 1 <= report.observed_generation <= MAX_GENERATION:
        yield "observed_generation", f"expected 1 to {MAX_GENERATION}, got {report.observed_generation}"
    if report.observed_time.tzinfo is None:
        yield "observed_time", "expected a time with its offset, such as 2025-10-17T10:00:00Z"
    elif report.observed_time > now + MAX_AHEAD:
        yield "observed_time", f"expected at most {_AHEAD} ahead of the server's clock, got {_shown(report)}"
    elif report.observed_time < now - MAX_AGE:
        yield "observed_time", f"expected an observation at most {_AGE} old, got {_shown(report)}"
    for field, raw in (("data", report.data), ("metadata", report.metadata)):
        if isinstance(raw, msgspec.Raw) and len(raw) > MAX_DATA_BYTES:
            yield field, f"expected at most {MAX_DATA_BYTES} bytes, got {len(raw)}"
    yield from _condition_errors(report)


def _shown(report: Report) -> str:
    return report.observed_time.isoformat()


def _condition_errors(report: Report) -> Iterator[tuple[str, str]]:
    if len(report.conditions) > MAX_CONDITIONS:
        yield "conditions", f"expected at most {MAX_CONDITIONS}, got {len(report.conditions)}"
        return
    seen: set[str] = set()
    for index, condition in enumerate(report.conditions):
        where = f"conditions[{index}]"
        if not condition.type.strip():
            yield f"{where}.type", "expected a name, got an empty one"
        elif condition.type in seen:
            yield f"{where}.type", "expected each type once, got this one a second time"
        seen.add(condition.type)
        for field, text, limit in (
            ("type", condition.type, MAX_TYPE_LENGTH),
            ("reason", condition.reason, MAX_REASON_LENGTH),
            ("message", condition.message, MAX_MESSAGE_LENGTH),
        ):
            if len(text) > limit:
                yield f"{where}.{field}", f"expected at most {limit} characters, got {len(text)}"
