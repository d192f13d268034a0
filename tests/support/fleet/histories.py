"""Histories of one resource: strategies that draw reports, changes and deletions, for tests of aggregation."""

from __future__ import annotations

from typing import Protocol

import msgspec
from hypothesis import strategies as st

from sentinel.core.fleet.documents import ConditionStatus
from tests.support.fleet.one_resource import FALSE, TRUE, UNKNOWN, OneResource

ADAPTERS = ("dns", "quota", "validation")


class Step(Protocol):
    """A report, or a change of the resource or of the configuration, in minute `at`."""

    @property
    def at(self) -> int: ...

    def __call__(self, resource: OneResource) -> None: ...


class Reported(msgspec.Struct, frozen=True):
    """A report on a generation that is `behind` that of the resource (ahead of it if negative)."""

    adapter: str
    available: ConditionStatus
    at: int
    behind: int
    is_finalized: bool

    def __call__(self, resource: OneResource) -> None:
        resource.report(
            self.adapter,
            self.available,
            at=self.at,
            generation=max(1, resource.generation - self.behind),
            is_finalized=self.is_finalized,
        )


class Patched(msgspec.Struct, frozen=True):
    at: int

    def __call__(self, resource: OneResource) -> None:
        if not resource.is_deleting:
            resource.patch(at=self.at)


class Deleted(msgspec.Struct, frozen=True):
    at: int
    children: int

    def __call__(self, resource: OneResource) -> None:
        if not resource.is_deleting:
            resource.delete(at=self.at, children=self.children)


class Required(msgspec.Struct, frozen=True):
    adapters: tuple[str, ...]
    at: int

    def __call__(self, resource: OneResource) -> None:
        resource.require(*self.adapters, at=self.at)


minutes = st.integers(0, 20)
some_adapters = st.lists(st.sampled_from(ADAPTERS), unique=True).map(tuple)
reported = st.builds(
    Reported,
    adapter=st.sampled_from((*ADAPTERS, "billing")),
    available=st.sampled_from((TRUE, TRUE, FALSE, UNKNOWN)),
    at=minutes,
    behind=st.sampled_from((0, 0, 0, 1, 2, -1)),
    is_finalized=st.booleans(),
)
patched = st.builds(Patched, at=minutes)
deleted = st.builds(Deleted, at=minutes, children=st.integers(0, 2))
required = st.builds(Required, some_adapters, at=minutes)


def agreement(at: int, is_finalized: bool) -> list[Step]:
    """All adapters report at about the same time."""
    return [Reported(adapter, TRUE, at + late, 0, is_finalized) for late, adapter in enumerate(ADAPTERS)]


def failure(at: int, adapter: str, delay: int) -> list[Step]:
    """All adapters report, and then one of them fails. With a negative delay, its clock is behind."""
    return [*agreement(at, is_finalized=False), Reported(adapter, FALSE, max(at + delay, 0), 0, False)]


def histories(*steps: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """Histories of these steps, sometimes with agreement of all adapters. A step named twice is more likely.

    Random reports almost never agree, so no resource would become available. `sampled_from` is used because
    `one_of` drops a strategy that it gets twice.
    """
    alone = st.sampled_from(steps).flatmap(lambda kind: kind.map(lambda step: [step]))
    agreed = st.builds(agreement, at=minutes, is_finalized=st.booleans())
    failed = st.builds(failure, at=minutes, adapter=st.sampled_from(ADAPTERS), delay=st.integers(-2, 5))
    groups = st.sampled_from((alone, alone, alone, agreed, failed)).flatmap(lambda kind: kind)
    return st.lists(groups, max_size=15).map(lambda drawn: [step for group in drawn for step in group])


changes = histories(reported, reported, reported, patched)
any_steps = histories(reported, reported, reported, reported, patched, deleted, required)
