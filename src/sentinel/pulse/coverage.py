"""Which resources no Sentinel watches, and which several do.

Selectors are labels, not shards: nobody guarantees that together they cover the fleet, and a resource that none
selects never gets an event. So the whole fleet is read once, every selector is asked about every resource, and
for what is left over a way to cover it is suggested: few selectors, and such as do not select again what is
covered already.

The fewest would be a set cover, which is hard to find in general; taking what covers most, again and again, is at
most a logarithm worse and in practice as good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from sentinel.core.labels import Selector
from sentinel.ports.fleet import FleetReader
from sentinel.pulse.settings import LabelMatch, is_selectable

_Label: TypeAlias = tuple[str, str]
_Groups: TypeAlias = "Counter[frozenset[_Label]]"
"""How many resources have exactly these labels; in a large fleet few sets of labels are different."""

_MOST_SUGGESTIONS = 20
"""Beyond that, and for a smaller share of what is left than one in so many, labels do not help: that needs new
labels, or a selector that takes everything."""
_MOST_CONSIDERED = 100


class Watch(msgspec.Struct, frozen=True):
    """One configuration: its file, as it was given, and what it selects."""

    file: str
    selector: Selector


class Matched(msgspec.Struct, frozen=True):
    """How much of the fleet one configuration selects."""

    file: str
    matched: int


class Overlap(msgspec.Struct, frozen=True):
    """A resource that several configurations select."""

    id: str
    configs: tuple[str, ...]


class LabelCount(msgspec.Struct, frozen=True):
    """How many of the resources that nobody watches have this label with this value."""

    label: str
    value: str
    resources: int


class Suggestion(msgspec.Struct, frozen=True):
    """A selector for one more Sentinel."""

    resource_selector: tuple[LabelMatch, ...]
    covers: int
    """How many resources it would cover that none of the configurations and no suggestion before it does."""
    overlaps: int
    """How many it would select that one of the configurations selects already."""


class Coverage(msgspec.Struct, frozen=True):
    """The answer, as it is printed for scripts."""

    total: int
    gaps: Sequence[str]
    overlaps: Sequence[Overlap]
    configs: Sequence[Matched]
    gap_labels: Sequence[LabelCount]
    """The most frequent first."""
    suggestions: Sequence[Suggestion]
    """Together they cover every gap, except those that follow."""
    unsuggested: int
    """Gaps that no label brings together: the only selector for them is one that takes everything."""


class Survey(msgspec.Struct, frozen=True):
    """Coverage, and what got in the way of finding it out."""

    coverage: Coverage
    malformed: Sequence[str]
    """One text for each item that could not be read, and so is not counted."""


async def survey(
    watches: Sequence[Watch], *, fleet: FleetReader, progress: Callable[[int], None] = lambda fetched: None
) -> Survey:
    """Walks a fleet, which must select nothing by itself, once; raises `FetchError` where that cannot be done."""
    census = _Census(watches)
    malformed: list[str] = []
    async with aclosing(fleet.walk()) as pages:
        async for page in pages:
            malformed.extend(page.malformed)
            for resource in page.resources:
                census.count(resource.observation.id, resource.observation.labels)
            progress(census.total)
    return Survey(census.coverage(), malformed)


class _Census:
    """What has been seen of the fleet so far."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches
        self._matched = [0] * len(watches)
        self._seen: set[str] = set()
        self._gaps: list[str] = []
        self._overlaps: list[Overlap] = []
        self._gap_groups: _Groups = Counter()
        self._covered_groups: _Groups = Counter()

    @property
    def total(self) -> int:
        return len(self._seen)

    def count(self, resource_id: str, labels: Mapping[str, str]) -> None:
        if resource_id in self._seen:  # a walk may repeat one that moved between pages
            return
        self._seen.add(resource_id)
        matching = [n for n, watch in enumerate(self._watches) if watch.selector.matches(labels)]
        for n in matching:
            self._matched[n] += 1
        if len(matching) > 1:
            self._overlaps.append(Overlap(resource_id, tuple(self._watches[n].file for n in matching)))
        alike = frozenset(labels.items())
        if matching:
            self._covered_groups[alike] += 1
        else:
            self._gaps.append(resource_id)
            self._gap_groups[alike] += 1

    def coverage(self) -> Coverage:
        suggestions, unsuggested = _suggest(self._gap_groups, self._covered_groups)
        return Coverage(
            total=self.total,
            gaps=sorted(self._gaps),
            overlaps=sorted(self._overlaps, key=lambda overlap: overlap.id),
            configs=[
                Matched(watch.file, count) for watch, count in zip(self._watches, self._matched, strict=True)
            ],
            gap_labels=[LabelCount(*label, count) for label, count in _ranked(_tally(self._gap_groups))],
            suggestions=suggestions,
            unsuggested=unsuggested,
        )


def _suggest(gaps: _Groups, covered: _Groups) -> tuple[list[Suggestion], int]:
    """Selectors for what nobody watches, and how many resources they leave."""
    left = Counter(gaps)
    suggestions: list[Suggestion] = []
    while left and len(suggestions) < _MOST_SUGGESTIONS:
        selector = _next_selector(left, covered)
        taken = _selected(selector, left)
        if not selector or taken.total() * _MOST_SUGGESTIONS < left.total():
            break
        suggestions.append(
            Suggestion(
                tuple(LabelMatch(label, value) for label, value in sorted(selector)),
                covers=taken.total(),
                overlaps=_selected(selector, covered).total(),
            )
        )
        left -= taken
    return suggestions, left.total()


def _next_selector(left: _Groups, covered: _Groups) -> frozenset[_Label]:
    """The selector that covers most of what is left, what it covers twice held against it; the shortest such."""
    best, gained = frozenset[_Label](), 0
    for label, share in _ranked(_tally(left))[:_MOST_CONSIDERED]:
        if best and share < gained:
            break  # those that follow are rarer still
        if not is_selectable(LabelMatch(*label)):
            continue
        selector = _narrowed(label, left, covered)
        gain = share - _selected(selector, covered).total()
        if not best or (gain, len(best)) > (gained, len(selector)):
            best, gained = selector, gain
    return best


def _narrowed(label: _Label, left: _Groups, covered: _Groups) -> frozenset[_Label]:
    """A selector for all that is left with this label, and for as little as possible of what is covered."""
    selector = frozenset({label})
    # What all of them have may be required besides, without losing any of them.
    common = frozenset.intersection(*_selected(selector, left))
    candidates = sorted(other for other in common - selector if is_selectable(LabelMatch(*other)))
    contested = _selected(selector, covered)
    while contested and candidates:
        narrowest = min(candidates, key=lambda other: _selected(frozenset({other}), contested).total())
        narrowed = _selected(frozenset({narrowest}), contested)
        if len(narrowed) == len(contested):
            break
        selector |= {narrowest}
        candidates.remove(narrowest)
        contested = narrowed
    return selector


def _selected(selector: frozenset[_Label], groups: _Groups) -> _Groups:
    return Counter({labels: count for labels, count in groups.items() if labels >= selector})


def _tally(groups: _Groups) -> Counter[_Label]:
    tally = Counter[_Label]()
    for labels, count in groups.items():
        for label in labels:
            tally[label] += count
    return tally


def _ranked(tally: Counter[_Label]) -> list[tuple[_Label, int]]:
    """The most frequent first, and always in the same order."""
    return sorted(tally.items(), key=lambda counted: (-counted[1], counted[0]))
