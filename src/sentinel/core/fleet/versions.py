"""Versions of a stored resource: the ETag of its document, and the optimistic lock of its row.

Work in progress is stored with the statuses of a resource and is not part of its document. It must not invalidate
the ETag that a user has read: the user's next write would fail although nothing has changed. But a writer that has
read the statuses before must notice it, or it would overwrite them.

So the row and the document have different versions, stored in one number. A version is a multiple of `_STEP` plus
the number of writes since then that have changed the statuses alone. The version of the document is the multiple.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_STEP = 1024
"""The number must fit into 63 bits together with microseconds since 1970. This does until the year 2255."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def after_change(version: int, *, now: datetime) -> int:
    """Return the version after a change of the document. `version` is the current one, 0 for a new resource.

    No other state ever had it: taking the time keeps it unique across resources that use one id in turn, and
    across a restored backup.
    """
    return max(version // _STEP + 1, (now - _EPOCH) // _MICROSECOND) * _STEP


def after_work_in_progress(version: int, *, now: datetime) -> int:
    """Return the version after a change of the statuses alone.

    The version of the document stays the same, except once in `_STEP` writes.
    """
    following = version + 1
    return following if following % _STEP else after_change(version, now=now)


def of_document(version: int) -> int:
    """Return the version of the document in a row with this version."""
    return version - version % _STEP
