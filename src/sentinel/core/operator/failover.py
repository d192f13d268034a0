"""How far a leader had got when it vanished, as its successor can know it.

A leader says with each renewal of its lease when its last cycle began and ended, as ages: the clocks of two
machines are never compared. The successor subtracts them from the time at which it saw the renewal. What the
leader did afterwards is unknown, but bounded: it would have renewed the lease again.

A lease that never changed while the successor watched says nothing about when the leader ended: perhaps long ago,
and nobody has published since. Then the successor publishes everything that is due, like a pulse that starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

_PREFIX: Final = "sentinel.hyperfleet.io/"
_LEADER: Final = _PREFIX + "last-cycle-of"
_STARTED: Final = _PREFIX + "last-cycle-started-ms-ago"
_ENDED: Final = _PREFIX + "last-cycle-ended-ms-ago"
_FAILING: Final = _PREFIX + "publishing-failed-since-ms-ago"
_MILLISECOND: Final = timedelta(milliseconds=1)


class LastCycle(msgspec.Struct, frozen=True):
    """The last cycle of a leader, as ages at the renewal of its lease."""

    started: timedelta
    ended: timedelta | None
    """None while the cycle runs."""
    failing: timedelta | None = None
    """Since when events could not be published; None if they could."""

    def annotations(self, leader: str) -> dict[str, str]:
        """Return the annotations of the lease that carry it. All are set, because a renewal keeps the others."""
        return {_LEADER: leader} | {
            key: "" if age is None else str(age // _MILLISECOND)
            for key, age in ((_STARTED, self.started), (_ENDED, self.ended), (_FAILING, self.failing))
        }


def read_last_cycle(annotations: Mapping[str, str], leader: str) -> LastCycle | None:
    """Return the cycle that this leader wrote into the annotations of its lease; None without a readable one.

    A leader takes a lease with the annotations of its predecessor, and may vanish before it has replaced them.
    `leader` is empty if the lease was released.
    """
    if leader not in ("", annotations.get(_LEADER)):
        return None
    started = _age(annotations.get(_STARTED))
    if started is None:
        return None
    return LastCycle(started, _age(annotations.get(_ENDED)), _age(annotations.get(_FAILING)))


def leader_end(
    cycle: LastCycle | None,
    *,
    seen: datetime,
    was_alive: bool,
    has_released: bool,
    renew_interval: timedelta,
    poll_interval: timedelta,
) -> datetime | None:
    """Return the time, by our clock, after which the leader has published nothing that fell due.

    `seen` is when we saw its last renewal, or the release of its lease, which came with `cycle`. If the leader may
    have begun another cycle, or was in the middle of one, it is the time of the renewal that did not come. If its
    events could not be published, it is when that began.

    `was_alive` says whether the lease changed while we watched. If it did not, the result is None: we know nothing
    that the leader has published since we started.
    """
    if not was_alive:
        return None
    last_alive = seen if has_released else seen + renew_interval
    if cycle is not None and cycle.failing is not None:
        return seen - cycle.failing
    if cycle is None or cycle.ended is None or seen - cycle.started + poll_interval <= last_alive:
        return last_alive
    return seen - cycle.ended


def _age(text: str | None) -> timedelta | None:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 15:
        return None
    return int(text) * _MILLISECOND
