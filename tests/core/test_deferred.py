"""A deferred sequence is made when it is first read."""

from __future__ import annotations

from sentinel.core.deferred import DeferredSequence


def test_items_are_made_once_and_only_if_they_are_read() -> None:
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [1, 2, 3]

    deferred = DeferredSequence(make)
    assert made == []

    assert (len(deferred), list(deferred), deferred[1], deferred[1:]) == (3, [1, 2, 3], 2, [2, 3])
    assert made == [1]
