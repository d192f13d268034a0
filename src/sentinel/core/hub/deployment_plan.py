"""Which instances a deployment reaches, in which batches. The same request and fleet always give the same plan.

    planned = plan(request, instances)

Ids keep the order in which the user gave them; what a selector matches is ordered by id. Regions come one after
the other, and no batch that follows a canary has instances of two regions. Canaries are taken from the front,
those that are connected first: an instance that is offline shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Final

import msgspec

from sentinel.core.hub.deployment import (
    InstanceFacts,
    Regions,
    Request,
    RequestProblem,
    Strategy,
    TargetOrder,
    Targets,
)

APPLY_TIME: Final = timedelta(seconds=5)
"""How long a batch is assumed to take, for the estimate."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment would do."""

    batches: tuple[tuple[InstanceFacts, ...], ...] = ()
    canary_batches: int = 0
    """How many of the first batches are canaries, which are analysed before the next batch begins."""
    problems: tuple[RequestProblem, ...] = ()
    """Why it cannot be started."""
    estimated_seconds: int = 0
    """How long it takes if nothing fails."""

    @property
    def total(self) -> int:
        """The number of targets."""
        return sum(map(len, self.batches))


def plan(request: Request, instances: Iterable[InstanceFacts]) -> Plan:
    """Plan a valid request. `instances` are those of the fleet, or at least all that the request names."""
    fleet = {facts.instance_id: facts for facts in instances}
    problems: list[RequestProblem] = []
    targets = _in_order(_targets(request, fleet, problems), request.order)
    canaries = _canary_batches(request, targets, problems)
    chosen = {facts.instance_id for batch in canaries for facts in batch}
    rest = [facts for facts in targets if facts.instance_id not in chosen]
    batches = (*canaries, *_batches(request, rest, len(targets)))
    return Plan(
        batches=batches,
        canary_batches=len(canaries),
        problems=tuple(problems),
        estimated_seconds=_estimate(request, len(batches), len(canaries)),
    )


def retry_request(request: Request, targets: Sequence[InstanceFacts]) -> Request:
    """Return the request of a deployment once more, for some of its targets.

    If the selector of its canaries matches none of them, their default number of canaries is watched instead.
    """
    canary = request.canary
    if canary.selector is not None and not any(canary.selector.matches(facts.labels) for facts in targets):
        canary = msgspec.structs.replace(canary, selector=None)
    ids = tuple(facts.instance_id for facts in targets)
    return msgspec.structs.replace(request, targets=Targets(ids=ids), canary=canary)


def _targets(
    request: Request, fleet: Mapping[str, InstanceFacts], problems: list[RequestProblem]
) -> Sequence[InstanceFacts]:
    selector = request.targets.selector
    if selector is not None:
        matching = [each for each in fleet.values() if not each.has_left and selector.matches(each.labels)]
        if not matching:
            problems.append(RequestProblem("targets.selector", "matches no instance"))
        return sorted(matching, key=lambda facts: facts.instance_id)
    found = []
    for instance_id in dict.fromkeys(request.targets.ids):
        facts = fleet.get(instance_id)
        if facts is None:
            problems.append(RequestProblem("targets.ids", f"there is no instance {instance_id}"))
        elif facts.has_left:
            problems.append(RequestProblem("targets.ids", f"instance {instance_id} is {facts.state}"))
        else:
            found.append(facts)
    return found


def _in_order(targets: Sequence[InstanceFacts], order: TargetOrder) -> Sequence[InstanceFacts]:
    regions = order.regions
    by_region = sorted(targets, key=lambda facts: _region_rank(regions, facts)) if regions else targets
    return [
        facts
        for _, region in groupby(by_region, key=lambda facts: _region_rank(regions, facts))
        for facts in _spread([*region], order.spread_by)
    ]


def _region_rank(regions: Regions | None, facts: InstanceFacts) -> tuple[int, str]:
    """Regions that the user lists come first, in that order, then the others by name."""
    if regions is None:
        return 0, ""
    value = facts.labels.get(regions.label, "")
    rank = regions.values.index(value) if value in regions.values else len(regions.values)
    return rank, value


def _spread(targets: Sequence[InstanceFacts], label: str) -> Sequence[InstanceFacts]:
    """Distribute the values of a label evenly, so that any part of the order has its share of each."""
    if not label:
        return targets
    zones: dict[str, list[InstanceFacts]] = {}
    for facts in targets:
        zones.setdefault(facts.labels.get(label, ""), []).append(facts)
    # The middle of each zone's slots on a line from 0 to 1. Round robin would leave the biggest zone for the end.
    slots = [
        ((2 * index + 1) / (2 * len(zone)), position, facts)
        for position, zone in enumerate(zones.values())
        for index, facts in enumerate(zone)
    ]
    return [facts for _, _, facts in sorted(slots, key=lambda slot: slot[:2])]


def _canary_batches(
    request: Request, targets: Sequence[InstanceFacts], problems: list[RequestProblem]
) -> Sequence[tuple[InstanceFacts, ...]]:
    """Each step adds as many as are missing to its count. A step that adds none is left out."""
    if request.strategy is not Strategy.CANARY or not targets:
        return []
    canary = request.canary
    candidates = sorted(targets, key=lambda facts: not facts.is_connected)
    sizes = [count.of(len(targets)) for count in canary.steps]
    if canary.selector is None:
        sizes.insert(0, canary.instances.of(len(targets)))
    else:
        selector = canary.selector
        candidates.sort(key=lambda facts: not selector.matches(facts.labels))
        sizes.insert(0, sum(selector.matches(facts.labels) for facts in targets))
        if not sizes[0]:
            problems.append(RequestProblem("canary.instances", "the selector matches no target"))
    batches, taken = [], 0
    for size in sizes:
        if batch := tuple(candidates[taken:size]):
            batches.append(batch)
            taken += len(batch)
    return batches


def _batches(
    request: Request, targets: Sequence[InstanceFacts], total: int
) -> Iterator[tuple[InstanceFacts, ...]]:
    if not targets:
        return
    if request.strategy is Strategy.ALL_AT_ONCE:
        yield tuple(targets)
        return
    size, regions = request.rolling.batch_size.of(total), request.order.regions
    for _, group in groupby(targets, key=lambda facts: _region_rank(regions, facts)):
        region = tuple(group)
        for start in range(0, len(region), size):
            yield region[start : start + size]


def _estimate(request: Request, batches: int, canary_batches: int) -> int:
    if request.strategy is Strategy.ALL_AT_ONCE:
        return math.ceil(batches * APPLY_TIME.total_seconds())
    delays = max(batches - canary_batches - 1, 0)
    duration = (
        batches * (APPLY_TIME + request.rolling.min_healthy_time)
        + delays * request.rolling.batch_delay
        + canary_batches * request.canary.duration
    )
    return math.ceil(duration.total_seconds())
