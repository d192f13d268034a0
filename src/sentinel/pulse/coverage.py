"""Which resources no Sentinel watches, and which several do.

Selectors match labels, so together they need not cover the fleet, and a resource that no selector matches never
gets an event. The whole fleet is read once and every selector is matched against every resource. For the resources
left over, selectors are suggested: as few as possible, and matching as little as possible of what is already
covered.

The smallest set of selectors is a set cover problem, which is NP-hard. The greedy choice is at most a logarithmic
factor worse, and as good in practice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from sentinel.core.labels import Selector
from sentinel.core.pulse.observation import MalformedItem
from sentinel.ports.fleet import FleetReader
from sentinel.pulse.settings import LabelMatch, is_selectable

_Label: TypeAlias = tuple[str, str]
_Groups: TypeAlias = "Counter[frozenset[_Label]]"
"""How many resources have exactly these labels; a large fleet has few distinct sets of labels."""

_MAX_SUGGESTIONS = 20
"""Also the smallest share, one in 20, of the uncovered resources that is worth a suggestion. Beyond that, the
fleet needs new labels, or an empty selector."""
_MAX_CANDIDATES = 100


class ConfigSelector(msgspec.Struct, frozen=True):
    """A configuration and its selector.

    The file is the path from the command line, so that the output names it as the user does.
    """

    file: str
    selector: Selector


class ConfigMatches(msgspec.Struct, frozen=True):
    """How many resources one configuration selects.

    A resource counts for each configuration that selects it.
    """

    file: str
    matched: int


class Overlap(msgspec.Struct, frozen=True):
    """A resource that several configurations select.

    The pulse of each publishes events for it, which is usually a mistake in a selector.
    """

    id: str
    configs: tuple[str, ...]


class LabelCount(msgspec.Struct, frozen=True):
    """How many unwatched resources have this label with this value."""

    label: str
    value: str
    resources: int


class Suggestion(msgspec.Struct, frozen=True):
    """A selector for one more Sentinel.

    It covers resources that neither a configuration nor an earlier suggestion selects. It overlaps with resources
    that a configuration already selects.
    """

    resource_selector: tuple[LabelMatch, ...]
    covers: int
    overlaps: int


class Coverage(msgspec.Struct, frozen=True):
    """The output of `sentinel coverage` for scripts."""

    total: int
    gaps: Sequence[str]
    overlaps: Sequence[Overlap]
    configs: Sequence[ConfigMatches]
    gap_labels: Sequence[LabelCount]
    """Most frequent first."""
    suggestions: Sequence[Suggestion]
    """Together they cover every gap, except `unsuggested`."""
    unsuggested: int
    """The number of gaps without a useful label; only an empty selector covers them."""


class CoverageResult(msgspec.Struct, frozen=True):
    """Coverage, and the items that it lacks."""

    coverage: Coverage
    malformed: Sequence[MalformedItem]
    """One message for each item that could not be read and is not counted."""


async def find_coverage(
    configs: Sequence[ConfigSelector],
    *,
    fleet: FleetReader,
    progress: Callable[[int], None] = lambda fetched: None,
) -> CoverageResult:
    """Walk the fleet once and match it against every configuration. Raises `FetchError`.

    `fleet` must not have a selector.
    """
    counter = _CoverageCounter(configs)
    malformed: list[MalformedItem] = []
    async with aclosing(fleet.walk()) as pages:
        async for page in pages:
            malformed.extend(page.malformed)
            for resource in page.resources:
                counter.count(resource.observation.id, resource.observation.labels)
            progress(counter.total)
    return CoverageResult(counter.coverage(), malformed)


class _CoverageCounter:
    """Counts matches, gaps and overlaps over a walk."""

    def __init__(self, configs: Sequence[ConfigSelector]) -> None:
        self._configs = configs
        self._matched = [0] * len(configs)
        self._seen: set[str] = set()
        self._gaps: list[str] = []
        self._overlaps: list[Overlap] = []
        self._gap_groups: _Groups = Counter()
        self._covered_groups: _Groups = Counter()

    @property
    def total(self) -> int:
        return len(self._seen)

    def count(self, resource_id: str, labels: Mapping[str, str]) -> None:
        if resource_id in self._seen:  # a walk may repeat a resource that moved between pages
            return
        self._seen.add(resource_id)
        matching = [n for n, config in enumerate(self._configs) if config.selector.matches(labels)]
        for n in matching:
            self._matched[n] += 1
        if len(matching) > 1:
            self._overlaps.append(Overlap(resource_id, tuple(self._configs[n].file for n in matching)))
        group = frozenset(labels.items())
        if matching:
            self._covered_groups[group] += 1
        else:
            self._gaps.append(resource_id)
            self._gap_groups[group] += 1

    def coverage(self) -> Coverage:
        suggestions, unsuggested = _suggest(self._gap_groups, self._covered_groups)
        return Coverage(
            total=self.total,
            gaps=sorted(self._gaps),
            overlaps=sorted(self._overlaps, key=lambda overlap: overlap.id),
            configs=[
                ConfigMatches(config.file, count)
                for config, count in zip(self._configs, self._matched, strict=True)
            ],
            gap_labels=[LabelCount(*label, count) for label, count in _ranked(_tally(self._gap_groups))],
            suggestions=suggestions,
            unsuggested=unsuggested,
        )


def _suggest(gaps: _Groups, covered: _Groups) -> tuple[list[Suggestion], int]:
    """Return selectors for the gaps, and how many resources remain uncovered."""
    uncovered = Counter(gaps)
    suggestions: list[Suggestion] = []
    while uncovered and len(suggestions) < _MAX_SUGGESTIONS:
        selector = _next_selector(uncovered, covered)
        newly_covered = _selected(selector, uncovered)
        if not selector or newly_covered.total() * _MAX_SUGGESTIONS < uncovered.total():
            break
        suggestions.append(
            Suggestion(
                tuple(LabelMatch(label, value) for label, value in sorted(selector)),
                covers=newly_covered.total(),
                overlaps=_selected(selector, covered).total(),
            )
        )
        uncovered -= newly_covered
    return suggestions, uncovered.total()


def _next_selector(uncovered: _Groups, covered: _Groups) -> frozenset[_Label]:
    """The selector with the highest gain: resources newly covered minus overlaps. Ties go to the shortest."""
    best, best_gain = frozenset[_Label](), 0
    for label, count in _ranked(_tally(uncovered))[:_MAX_CANDIDATES]:
        if best and count < best_gain:
            break  # sorted by count, so no later label can gain more
        if not is_selectable(LabelMatch(*label)):
            continue
        selector = _narrowed(label, uncovered, covered)
        gain = count - _selected(selector, covered).total()
        if not best or (gain, len(best)) > (best_gain, len(selector)):
            best, best_gain = selector, gain
    return best


def _narrowed(label: _Label, uncovered: _Groups, covered: _Groups) -> frozenset[_Label]:
    """A selector for all uncovered resources with this label and as few covered ones as possible."""
    selector = frozenset({label})
    # Labels that all of them share can be added without losing any.
    common = frozenset.intersection(*_selected(selector, uncovered))
    candidates = sorted(other for other in common - selector if is_selectable(LabelMatch(*other)))
    overlapping = _selected(selector, covered)
    while overlapping and candidates:
        narrowest = min(candidates, key=lambda other: _selected(frozenset({other}), overlapping).total())
        narrowed = _selected(frozenset({narrowest}), overlapping)
        if len(narrowed) == len(overlapping):
            break
        selector |= {narrowest}
        candidates.remove(narrowest)
        overlapping = narrowed
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
    """Sort by frequency, then by label, so that the order is stable."""
    return sorted(tally.items(), key=lambda counted: (-counted[1], counted[0]))
