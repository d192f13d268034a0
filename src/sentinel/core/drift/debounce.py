"""Collects drift for a short time, so that a burst of changes becomes one trigger.

The window slides: a burst ends when nothing has drifted for the length of the window. Without a limit, something
that drifts all the time would postpone its trigger forever, so a burst also ends when it has lasted for the
maximum wait.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

MAX_OBJECTS = 100
"""How many objects of a burst are remembered. The others are only counted."""

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_64_BITS = 0xFFFFFFFFFFFFFFFF


class Burst(msgspec.Struct, frozen=True):
    """What drifted in one window."""

    opened: datetime
    """When the first event came."""
    latest: datetime
    """When the last event came."""
    objects: tuple[str, ...]
    """The objects, each once, in the order in which they drifted. A trigger names the first."""
    events: int = 1

    @property
    def first(self) -> str:
        """The object that drifted first; empty if none is known."""
        return self.objects[0] if self.objects else ""


class Debounce(msgspec.Struct, frozen=True):
    """How long drift is collected."""

    window: timedelta
    max_wait: timedelta

    def due(self, burst: Burst) -> datetime:
        """Return when the burst ends if nothing else drifts."""
        return min(burst.latest + self.window, burst.opened + self.max_wait)


def add(burst: Burst | None, drifted: str, now: datetime) -> Burst:
    """Return the burst with one more event. Without a burst, a new one begins."""
    if burst is None:
        return Burst(now, now, (drifted,))
    return Burst(burst.opened, now, _union(burst.objects, (drifted,)), burst.events + 1)


def merge(earlier: Burst, later: Burst) -> Burst:
    """Return both bursts as one, which begins with the objects of `earlier`."""
    return Burst(
        min(earlier.opened, later.opened),
        max(earlier.latest, later.latest),
        _union(earlier.objects, later.objects),
        earlier.events + later.events,
    )


def jitter(name: str, maximum: timedelta) -> timedelta:
    """Return how much longer the window of a cluster is: whole seconds below `maximum`, by a hash of its name.

    So the triggers of many clusters do not all come at once when something changes in all of them.
    """
    seconds = int(maximum.total_seconds())
    if seconds <= 0 or not name:
        return timedelta(0)
    return timedelta(seconds=fnv1a_64(name.encode()) % seconds)


def fnv1a_64(data: bytes) -> int:
    """Return the FNV-1a hash with 64 bits."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _64_BITS
    return value


def _union(objects: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    new = tuple(each for each in more if each not in objects)
    return (*objects, *new)[:MAX_OBJECTS]
